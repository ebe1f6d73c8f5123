# SPDX-License-Identifier: Apache-2.0
#
# bash tab.bash LINE prints what bash offers at TAB behind a line, one a line, with the completion that kubectl prints for bash. Its
# function is called as readline calls it: words end at blanks, and runs of : and = are words of their own.
set -e
# shellcheck source=/dev/null
source /usr/share/bash-completion/bash_completion
# shellcheck source=/dev/null
source <(kubectl completion bash)
COMP_LINE="$1" COMP_POINT="${#1}" COMP_TYPE=9 COMP_KEY=9 COMP_WORDS=()
rest="$1"
while [[ "$rest" =~ ^[[:blank:]]*([^[:blank:]:=]+|[:=]+)(.*)$ ]]; do
	COMP_WORDS+=("${BASH_REMATCH[1]}")
	rest="${BASH_REMATCH[2]}"
done
if [[ "$1" == *' ' ]]; then
	COMP_WORDS+=("")
fi
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; } # the builtin works at TAB alone
set +e           # what the function returns means nothing
"$(complete -p kubectl | sed -E 's/.* -F ([^ ]+) .*/\1/')" kubectl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
if ((${#COMPREPLY[@]} > 0)); then
	printf '%s\n' "${COMPREPLY[@]}"
fi
