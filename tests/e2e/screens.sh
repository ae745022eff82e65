#!/bin/bash
# What the command line says: help screens on stdout with exit code 0, everything that it doesn't
# understand on stderr with exit code 2.
. "$(dirname "$0")/common.bash"
out=$t/screen

# says_on STREAM CODE NAME TEXT ARGUMENTS...: the text is on that stream, the other one is empty.
says_on() {
    local stream=$1 wanted=$2 name=$3 text=$4 other=2
    shift 4
    [ "$stream" = 2 ] && other=1
    timeout "$limit" "$weft" "$@" >"$t/1" 2>"$t/2" </dev/null
    code=$?
    cp "$t/$stream" "$out"
    passes "$name" ended "$wanted" "$text"
    passes "$name, the other stream" test ! -s "$t/$other"
}
says_on 2 2 "no command" "usage: weft COMMAND"
says_on 1 0 help "usage: weft COMMAND" help
says_on 1 0 --help "usage: weft COMMAND" --help
says_on 1 0 --version "numerics" --version
says_on 2 2 "an unknown command" "there is no command \"tarin\"" tarin
says_on 2 2 "help on nothing" "there is no help on \"optim\"" help optim

commands=$("$weft" help | sed -n 's/^  \([a-z]*\) *\(CONFIG\|DIR\|PATH\) .*/\1/p')
passes "seven commands or more" test "$(wc -w <<<"$commands")" -ge 7
for command in $commands; do
    says_on 1 0 "$command --help" "Usage: weft $command [OPTION...]" "$command" --help
    says_on 2 2 "$command with an unknown option" "weft $command: unrecognized option '--what'" \
        "$command" --what x
    says_on 2 2 "$command without a path" " is expected" "$command"
    says_on 1 0 "help $command" "Usage: weft $command [OPTION...]" help "$command"
    says_on 2 2 "$command with two paths" "b: one path is expected, a came first" "$command" a b
done
says_on 2 2 "--tp 0" "--tp 0: a whole number from 1 to 2147483647" train --tp 0 "$config"
says_on 2 2 "--tp many" "--tp many: a whole number from 1 to 2147483647" train --tp many "$config"
says_on 2 2 "--stop-at -1" "--stop-at -1: a whole number from 1 to 2147483647" train --stop-at -1 "$config"
says_on 2 2 "--set without a value" "requires an argument" train --set

# Every key that a config of ours sets is explained.
says_on 1 0 "help config" "[optim]" help config
for file in configs/*.ini tests/configs/*.ini; do
    missing=$(sed -n 's/^\([a-z0-9_]*\) *=.*/\1/p' "$file" | sort -u |
        while read -r key; do grep -q "^$key = " "$out" || echo "$key"; done)
    passes "the keys of $file are explained" test -z "$missing"
done

train ranks 2 --tp 3 --stop-at 1
passes "more tensor ranks than ranks" ended 2 "--tp 3 --dp 1 needs 3 ranks, there are 2"
train ranks 2 --tp 9 --stop-at 1
passes "more tensor ranks than shards" ended 2 "--tp 9: between 1 and grid.tensor = 8"
train ranks one --stop-at 25
passes "a stop after the end" ended 2 "--stop-at 25"
finish
