// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/token"
	"regexp"
	"testing"
)

// TestRegularExpressions: all regular expressions of the programs can be parsed, and none is compiled before main. What
// is put together with something other than a string has "%s" in its place.
func TestRegularExpressions(t *testing.T) {
	found := 0
	eachExpression(t, []string{"cmd", "docs", "nodehelper", "plugin", "trace"}, func(at token.Position, e ast.Expr) bool {
		call, _ := e.(*ast.CallExpr)
		if call == nil {
			return true
		}
		switch of, _ := call.Fun.(*ast.SelectorExpr); {
		case isFunction(of, "regexp", "MustCompile"):
			t.Errorf("%s: use lazyregexp.New", at)
		case isFunction(of, "lazyregexp", "New"):
			found++
			if text, ok := textOf(call.Args[0]); ok {
				if _, err := regexp.Compile(text); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
		return true
	})
	if found < 50 {
		t.Errorf("%d expressions were found: the programs have more", found)
	}
}

// isFunction tells whether a selector is a function of a package.
func isFunction(of *ast.SelectorExpr, pkg, name string) bool {
	if of == nil || of.Sel.Name != name {
		return false
	}
	x, _ := of.X.(*ast.Ident)
	return x != nil && x.Name == pkg
}
