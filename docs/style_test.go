// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// oddPhrases are those that read oddly in technical English, with what to write in their place. They are looked for in
// Markdown and in the texts of the programs.
var oddPhrases = []struct {
	phrase *regexp.Regexp
	write  string
}{
	{regexp.MustCompile(`\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bsomebody\b`), "someone"},
	{regexp.MustCompile(`\bthe way there\b`), "the request, or its route"},
	{regexp.MustCompile(`\bfares?\b`), "whether it is healthy, or what its result is"},
	{regexp.MustCompile(`\bwhich are named\b`), "and names them"},
	{regexp.MustCompile(`\bhas it that\b`), "says that"},
	{regexp.MustCompile(`\bpass(es)? untranslated\b|\bgoes on untranslated\b`), "is not translated"},
	{regexp.MustCompile(`\bwhat(ever)? bec(omes|ame) of\b`), "what happens to"},
	{regexp.MustCompile(`(?i)\bbefore success is said\b`), "before the command reports success"},
	{regexp.MustCompile(`\bnobody (listens|answers|answered)\b`), "nothing listens, nothing answers"},
	{regexp.MustCompile(`\b(it|this|that|which|value|[%.\d]+q|") is no (a-z )*[a-z]+ (of|that|to)\b`), "is not a"},
	{regexp.MustCompile(`%[.\d]*q is no [a-z]`), "is not a"},
	{regexp.MustCompile(`\bis no (finding|command|fault|mismatch|rule|route|mode|file|name|address|number)\b`), "is not a"},
	{regexp.MustCompile(`\bare no (findings?|rules|mismatch|danger|difference)\b`), "are not"},
	{regexp.MustCompile(`\b(is|are|was|were|be) to blame\b`), "causes"},
	{regexp.MustCompile(`\bheld against\b`), "compared with"},
	{regexp.MustCompile(`\bmust bear\b`), "must have"},
	{regexp.MustCompile(`\b[Tt]hose of old\b`), "the old ones"},
	{regexp.MustCompile(`\bis it well\b`), "is it healthy"},
	{regexp.MustCompile(`\bin vain\b`), "without an answer"},
	{regexp.MustCompile(`\bfor want of\b`), "for lack of, or because … is missing"},
	{regexp.MustCompile(`\bby way of\b`), "through"},
	{regexp.MustCompile(`\bwho(ever|soever|sever) they are\b`), "of any"},
	{regexp.MustCompile(`\bas good as\b`), "almost"},
	{regexp.MustCompile(`\bhave it let\b`), "make it allow"},
	{regexp.MustCompile(`\bgo(es)? to nobody\b`), "reaches no host"},
	{regexp.MustCompile(`\bsays? so (itself|themselves)\b`), "reports it"},
	{regexp.MustCompile(`\bto whatever port\b`), "whatever the port"},
	{regexp.MustCompile(`\bback another way\b|\banother way than\b`), "by another route"},
	{regexp.MustCompile(`\blast words\b`), "last output"},
	{regexp.MustCompile(`\bno record is of\b`), "that have no record"},
	{regexp.MustCompile(`\bkeeps? everybody out\b|\beverybody is kept out\b`), "refuses every client"},
	{regexp.MustCompile(`\b(is|are) asked first\b`), "is evaluated first"},
	{regexp.MustCompile(`\b[Aa]s of \[`), "as for"},
	{regexp.MustCompile(`\b(is|are) none of (the|its|their|these|those|%v)\b`), "is not one of"},
	{regexp.MustCompile(`\bwithout a word\b`), "without any output, or without saying so"},
	{regexp.MustCompile(`\bsomething else than\b`), "something other than"},
	{regexp.MustCompile(`\btells? of (those|these|them) in\b`), "reports them in"},
	{regexp.MustCompile(`\bcannot read it says\b`), "It reports what it cannot read"},
	{regexp.MustCompile(`\bmind (whose|what|which)\b`), "check whose"},
	{regexp.MustCompile(`\bwith an own\b`), "with a … of its own"},
	{regexp.MustCompile(`\bpacket's way\b|\bon the way %s`), "path"},
	{regexp.MustCompile(`\bway back\b`), "return route"},
	{regexp.MustCompile(`\blets? nothing through\b`), "forwards nothing, allows nothing"},
	{regexp.MustCompile(`\bstraight to\b`), "directly to"},
	{regexp.MustCompile(`\bby why\b`), "by reason"},
	{regexp.MustCompile(`\bto be had\b|\bcannot be had\b`), "is not available"},
	{regexp.MustCompile(`\bgets? there\b`), "arrives"},
	{regexp.MustCompile(`\bbroke off\b`), "ended"},
	{regexp.MustCompile(`\bis no more\b`), "no longer exists"},
	{regexp.MustCompile(`\bjust so\b`), "like this"},
	{regexp.MustCompile(`\b(is|was|are|were|be) taken back\b`), "is undone, is removed again"},
	{regexp.MustCompile(`\bshared out\b`), "distributed"},
	{regexp.MustCompile(`\b(says? nothing|speaks?) of\b`), "does not say, mentions"},
	{regexp.MustCompile(`\bstands? (more than once|under no)\b`), "is listed"},
	{regexp.MustCompile(`\bno [a-z]+ is due\b`), "is expected"},
	{regexp.MustCompile(`\bside by side\b`), "at the same time"},
	{regexp.MustCompile(`\bon the way\b`), "on the path"},
	{regexp.MustCompile(`\b[Aa]n own\b`), "a … of its own"},
	{regexp.MustCompile(`\btaken away\b|\btakes? (it|them) away\b`), "removed"},
	{regexp.MustCompile(`\breach(es)? nobody\b|\bnobody is (there|behind)\b|\bbehind which nobody is\b`), "no host"},
	{regexp.MustCompile(`\bstays? what (it is|they are)\b`), "is not changed"},
	{regexp.MustCompile(`\b(is|are) asked of (%|the|it)`), "the query goes to"},
	{regexp.MustCompile(`\b(it|they|%[.\d]*[sqv]) answers? was not asked\b`), "the answer is not known"},
	{regexp.MustCompile(`\btreated otherwise\b`), "is not treated as"},
	{regexp.MustCompile(`\bwhoever (set|made|gave|removed|wrote)\b`), "what configures it, or its owner"},
	{regexp.MustCompile(`\b(is|are) listened at\b`), "processes listen at"},
	{regexp.MustCompile(`\b(is|are|be) (not )?looked at\b`), "is read, is verified"},
	{regexp.MustCompile(`\btakes? [^.;:]{1,60} for (its|their) own\b`), "treats as its own"},
	{regexp.MustCompile(`\bfails? beyond\b`), "fails if more than"},
	{regexp.MustCompile(`\bto be told from\b|\b(is|are) not told\b|\bcannot be told\b`), "is not known"},
}

// allowedPhrases are right wherever they are.
var allowedPhrases = regexp.MustCompile(`(?i)\bthere is no\b|\band there is no\b|\bthere are no\b`)

// oddIn returns what reads oddly in a text, and what to write in its place.
func oddIn(text string) []string {
	text = strings.Join(strings.Fields(allowedPhrases.ReplaceAllString(text, "")), " ")
	var out []string
	for _, p := range oddPhrases {
		if m := p.phrase.FindString(text); m != "" {
			out = append(out, strconv.Quote(m)+": write "+p.write)
		}
	}
	return out
}

// Markdown is read by paragraphs, so that a phrase that a line ends in is found, too.
func TestMarkdownIsPlainEnglish(t *testing.T) {
	for _, page := range pages(t) {
		name := strings.TrimPrefix(page, root+"/")
		fence := false
		for i, paragraph := range strings.Split(read(t, page), "\n\n") {
			inCode := fence
			fence = fence != (strings.Count("\n"+paragraph, "\n```")%2 == 1)
			if inCode {
				continue
			}
			for _, odd := range oddIn(paragraph) {
				t.Errorf("%s, paragraph %d: %s", name, i+1, odd)
			}
		}
	}
}

// The texts of the programs are those of their source: strings that are put together are read as one.
func TestMessagesArePlainEnglish(t *testing.T) {
	dirs := []string{"cmd", "internal", "nodehelper", "plugin", "trace"}
	eachExpression(t, dirs, func(at token.Position, e ast.Expr) bool {
		text, ok := textOf(e)
		if !ok {
			return true
		}
		for _, odd := range oddIn(text) {
			t.Errorf("%s: %s", at, odd)
		}
		return false
	})
}

// eachExpression calls a function with each expression of the programs in these directories, and then with those of
// which it consists, if the function says so.
func eachExpression(t *testing.T, dirs []string, do func(at token.Position, e ast.Expr) (inside bool)) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				e, ok := n.(ast.Expr)
				return !ok || do(files.Position(e.Pos()), e)
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// textOf returns the text of a string, or of several that are put together; what is not one of them is "%s" there.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, of := textOf(e.X)
		right, and := textOf(e.Y)
		if !of && !and {
			return "", false
		}
		if !of {
			left = "%s"
		}
		if !and {
			right = "%s"
		}
		return left + right, true
	}
	return "", false
}

func TestOddPhrases(t *testing.T) {
	for text, odd := range map[string]bool{
		"it writes every rule anew": true, "the client waits in vain": true, "by way\nof the Service": true,
		"%q is no mode": true, "there is no node %q": false,
		"it is no longer there": false, "what\nbecomes of the packet": true,
		"Rules that do the right thing are no finding": true, "nobody may make pods": false,
	} {
		if got := oddIn(text); (len(got) > 0) != odd {
			t.Errorf("%q: %v", text, got)
		}
	}
}
