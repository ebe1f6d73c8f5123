// SPDX-License-Identifier: Apache-2.0

package syntax

// Exprs calls visit for every expression of a statement, and for those inside of them; not for what is inside of an
// [Opaque].
func Exprs(s Statement, visit func(Expr)) {
	switch s := s.(type) {
	case *Match:
		exprs(visit, s.Left, s.Right)
	case *VMap:
		exprs(visit, s.Key, s.Data)
	case *Queue:
		exprs(visit, s.Num)
	case *NAT:
		exprs(visit, s.Addr, s.Port)
	case *TProxy:
		exprs(visit, s.Addr, s.Port)
	case *Dup:
		exprs(visit, s.Addr, s.Dev)
	case *Reset:
		exprs(visit, s.Option)
	case *ObjectRef:
		if s.Map != nil {
			exprs(visit, s.Map)
		}
	case *Mangle:
		exprs(visit, s.Key, s.Value)
	case *Update:
		exprs(visit, s.Elem, s.Data)
		for _, inner := range s.Statements {
			Exprs(inner, visit)
		}
	}
}

func exprs(visit func(Expr), list ...Expr) {
	for _, e := range list {
		if e == nil {
			continue
		}
		visit(e)
		switch e := e.(type) {
		case List:
			exprs(visit, e...)
		case *Range:
			exprs(visit, e.From, e.To)
		case *Prefix:
			exprs(visit, e.Addr)
		case *Hash:
			exprs(visit, e.Expr)
		case *Binary:
			exprs(visit, e.Operands...)
		case Concat:
			exprs(visit, e...)
		case *Map:
			exprs(visit, e.Key, e.Data)
		case AnonymousSet:
			for i := range e {
				exprs(visit, e[i].Key, e[i].Value)
			}
		case *Elem:
			exprs(visit, e.Val)
		}
	}
}
