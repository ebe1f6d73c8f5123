# SPDX-License-Identifier: Apache-2.0
#
# zsh -f tab.zsh LINE prints what zsh offers at TAB behind a line, one a line, with the completion that kubectl prints for zsh. A second
# zsh, on a terminal that this one holds, gets the line and the TAB; what it would show it writes to a file.
set -e
zmodload zsh/zpty
export OFFERED="$(mktemp)"
trap 'rm -f "$OFFERED"' EXIT
zpty tab exec zsh -f -i # in place of a copy of this one, which would remove the file as it ends
zpty -w tab "source ${(q)0:A:h}/tab-inside.zsh"
zpty -r tab seen '*<ready>*'
zpty -w -n tab "$1"$'\t'
zpty -r tab seen '*<done>*'
cat "$OFFERED"
zpty -d tab
