// SPDX-License-Identifier: Apache-2.0

package lazyregexp

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

// TestExpressions: all expressions of the programs that are written in one piece can be parsed, and none is compiled
// before main.
func TestExpressions(t *testing.T) {
	found := 0
	for _, dir := range []string{"cmd", "docs", "nodehelper", "plugin", "trace"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				of, _ := call.Fun.(*ast.SelectorExpr)
				if of == nil {
					return true
				}
				where := files.Position(call.Pos())
				switch pkg, _ := of.X.(*ast.Ident); {
				case pkg == nil:
				case pkg.Name == "regexp" && of.Sel.Name == "MustCompile":
					t.Errorf("%s: use lazyregexp.New", where)
				case pkg.Name == "lazyregexp" && of.Sel.Name == "New":
					if text, ok := literal(call.Args[0]); ok {
						found++
						if _, err := regexp.Compile(text); err != nil {
							t.Errorf("%s: %v", where, err)
						}
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Errorf("%d expressions were found: the programs have more", found)
	}
}

// literal returns the text of string literals, added or not.
func literal(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		x, ok := literal(e.X)
		y, ok2 := literal(e.Y)
		return x + y, ok && ok2
	}
	return "", false
}

func TestNew(t *testing.T) {
	re := New("^a+$")
	if first := re(); first != re() || !first.MatchString("aa") || first.MatchString("b") {
		t.Error("it is not one expression")
	}
	defer func() {
		if recover() == nil {
			t.Error("what cannot be parsed does not panic")
		}
	}()
	New("(")()
}
