# SPDX-License-Identifier: Apache-2.0
#
# What the zsh that tab.zsh types into is told first.
PROMPT=
autoload -Uz compinit && compinit -D -u
source <(kubectl completion zsh)
bindkey '^I' complete-word

# Calls with -O, -A or -D only ask which words match; the others add them, and are noted.
compadd() {
	local flags=${@[1,(i)(-|--)]}
	local -a words
	if [[ $flags != *-(O|A|D)\ * ]]; then
		builtin compadd -A words "$@"
		(($#words == 0)) || print -rl -- $words >>|"$OFFERED"
	fi
	builtin compadd "$@"
}

# The line editor reads; the completion has ended.
zle-line-init() { print '<ready>' }
zle -N zle-line-init
finish() { print '<done>' }
comppostfuncs=(finish)
