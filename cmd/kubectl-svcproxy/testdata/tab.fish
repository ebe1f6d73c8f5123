# SPDX-License-Identifier: Apache-2.0
#
# fish --no-config tab.fish LINE prints what fish offers at TAB behind a line, one a line, with the completion that kubectl prints for fish.
kubectl completion fish | source
complete -C $argv[1]
