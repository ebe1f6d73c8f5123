// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/svcproxy/kubectl-svcproxy/nodehelper/tools"
)

// errMissing says that no root has a program.
var errMissing = errors.New("is not installed, neither in the helper's image nor on the node")

// any runs the first program of the first root that has one, and goes on to the next root where the output is not what
// was asked for. complete says what is wrong with an output that is not; nil takes any.
func (r *reader) any(
	ctx context.Context, programs, args []string, complete func(stdout []byte, stderr string) error,
) ([]byte, error) {
	var errs []error
	for _, root := range r.roots {
		for _, p := range programs {
			path := tools.Find(root, p)
			if path == "" {
				continue
			}
			out, stderr, err := tools.Run(ctx, root, path, nil, args...)
			if err == nil && complete != nil {
				err = complete(out, stderr)
			}
			if err == nil {
				return out, nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", whose(root), err))
			break
		}
	}
	if len(errs) == 0 {
		return nil, fmt.Errorf("%s %w", programs[0], errMissing)
	}
	return nil, errors.Join(errs...)
}

// whose names the owner of a root's programs, for people.
func whose(root string) string {
	if root == "/" {
		return "the helper's"
	}
	return "the node's"
}

// command reads what a program prints.
func command(program string, args ...string) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		return r.any(ctx, []string{program}, args, nil)
	}
}

// inTurn runs ip with several commands, and returns what they print, one behind the other.
func inTurn(ctx context.Context, r *reader, commands ...[]string) (out []byte, err error) {
	for _, args := range commands {
		part, err := command("ip", args...)(ctx, r)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// readAddresses reads the addresses, and behind them the table of labels by which the kernel chooses sources of IPv6. A
// kernel without IPv6 has none.
func readAddresses(ctx context.Context, r *reader) ([]byte, error) {
	addresses := []string{"-j", "addr"}
	if _, err := os.Stat("/proc/sys/net/ipv6"); errors.Is(err, fs.ErrNotExist) {
		return inTurn(ctx, r, addresses)
	}
	return inTurn(ctx, r, addresses, []string{"-j", "addrlabel", "list"})
}

// readNeighbours reads the neighbour table, and behind it the addresses for which the node answers in place of others.
func readNeighbours(ctx context.Context, r *reader) ([]byte, error) {
	return inTurn(ctx, r, []string{"-j", "neigh", "show", "nud", "all"}, []string{"-j", "neigh", "show", "proxy"})
}

// readRoutes reads the routes of a family, and behind them what the kernel has learned of single destinations.
func readRoutes(family string) func(context.Context, *reader) ([]byte, error) {
	return func(ctx context.Context, r *reader) ([]byte, error) {
		show := []string{"-j", family, "route", "show", "table", "all"}
		out, err := inTurn(ctx, r, show)
		// With nexthop_compat_mode=0 ip -d alone tells where it leads.
		if err == nil && bytes.Contains(out, []byte(`"nhid"`)) {
			out, err = inTurn(ctx, r, append([]string{"-d"}, show...))
		}
		if err != nil {
			return nil, err
		}
		learned, err := inTurn(ctx, r, []string{"-j", family, "route", "show", "cache"})
		if err != nil {
			return nil, err
		}
		return append(out, learned...), nil
	}
}

// readIPsec reads the policies of IPsec, and behind them what happens to packets that none selects. Before Linux
// 5.15 (2d151d39073a) these are accepted, and the kernel does not know the question.
func readIPsec(ctx context.Context, r *reader) ([]byte, error) {
	policies, err := command("ip", "xfrm", "policy")(ctx, r)
	if err != nil {
		return nil, err
	}
	others, err := command("ip", "xfrm", "policy", "getdefault")(ctx, r)
	if err != nil && !strings.Contains(err.Error(), "Invalid argument") {
		return nil, err
	}
	return append(policies, others...), nil
}

// unreadable is what the save programs say of what they do not understand (iptables/nft-shared.c, iptables/nft.c,
// iptables/xtables-save.c): a rule or a table that a newer one has written, or nft itself. A line with one text
// behind the other says so.
var unreadable = []struct{ text, then string }{
	{"is incompatible, use 'nft' tool", ""},
	{"unsupported revision", ""},
	{"bytes of unknown match data", ""},
	{"bytes of unknown target data", ""},
	{"XT match ", " not found"},
	{"XT target ", " not found"},
}

// unreadableLine returns the first line of unreadable; nil where there is none. A node has 15 MB of rules.
func unreadableLine(text []byte) []byte {
	for _, x := range unreadable {
		for rest := text; ; {
			before, after, found := bytes.Cut(rest, []byte(x.text))
			if !found {
				break
			}
			end, _, _ := bytes.Cut(after, []byte("\n"))
			if bytes.Contains(end, []byte(x.then)) {
				return rest[bytes.LastIndexByte(before, '\n')+1 : len(before)+len(x.text)+len(end)]
			}
			rest = after[len(end):]
		}
	}
	return nil
}

// save reads the rules of a backend.
func save(program, backend string) func(context.Context, *reader) ([]byte, error) {
	want := map[string]string{"nft": "(nf_tables)", "legacy": "(legacy)"}[backend]
	return func(ctx context.Context, r *reader) ([]byte, error) {
		if backend == "nft" {
			if there, err := r.kernel.has("nf_tables"); err != nil {
				return nil, err
			} else if !there {
				return nil, errAbsent
			}
		} else if there, err := tools.HasLegacyTables(program == "ip6tables"); err != nil {
			return nil, err
		} else if !there {
			return nil, errAbsent
		}
		complete := func(stdout []byte, stderr string) error {
			for _, text := range [][]byte{stdout, []byte(stderr)} {
				if line := unreadableLine(text); line != nil {
					return fmt.Errorf("%s-%s-save cannot read all of the rules: %s", program, backend, bytes.TrimSpace(line))
				}
			}
			return nil
		}
		out, err := r.any(ctx, []string{program + "-" + backend + "-save"}, []string{"-c"}, complete)
		if errors.Is(err, errMissing) {
			// A system with one backend may have it under the plain name only.
			out, err = r.plain(ctx, program+"-save", want, complete)
		}
		if err == nil && len(bytes.TrimSpace(out)) == 0 {
			return nil, errAbsent
		}
		return out, err
	}
}

// plain runs the program without the backend in its name, where that is the backend that it uses.
func (r *reader) plain(ctx context.Context, program, want string, complete func([]byte, string) error) ([]byte, error) {
	for _, root := range r.roots {
		path := tools.Find(root, program)
		if path == "" {
			continue
		}
		version, _, err := tools.Run(ctx, root, path, nil, "--version")
		if err != nil || !bytes.Contains(version, []byte(want)) {
			continue
		}
		out, stderr, err := tools.Run(ctx, root, path, nil, "-c")
		if err == nil {
			err = complete(out, stderr)
		}
		if err == nil {
			return out, nil
		}
		return nil, fmt.Errorf("%s: %w", whose(root), err)
	}
	return nil, fmt.Errorf("%s %s %w", program, want, errMissing)
}

// readNftOfPod has nft read every table of a pod's network namespace. An nft older than whoever wrote a rule says so,
// or prints what is no JSON.
func readNftOfPod(ctx context.Context, r *reader) ([]byte, error) {
	if there, err := r.kernel.has("nf_tables"); err != nil {
		return nil, err
	} else if !there {
		return nil, errAbsent
	}
	return r.any(ctx, []string{"nft"}, []string{"-j", "list", "ruleset"}, func(stdout []byte, stderr string) error {
		if !bytes.HasPrefix(bytes.TrimSpace(stdout), []byte("{")) {
			return fmt.Errorf("nft -j list ruleset prints no JSON: %s", firstLine(stderr))
		}
		return nil
	})
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// readConntrack reads the connections of both families.
func readConntrack(ctx context.Context, r *reader) ([]byte, error) {
	var all []byte
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := r.any(ctx, []string{"conntrack"}, []string{"-L", "-f", family, "-o", "extended"}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, out...)
	}
	return all, nil
}

// WriterRoots lists the file systems from which a program that changes the node's rules should be run, the best first:
// the node's, then this process's own.
func WriterRoots(root string) []string {
	roots := programRoots(root)
	slices.Reverse(roots)
	return roots
}
