#!/bin/sh
# check_spills.sh LOG BYTES[,WORD=BYTES]... ARCHITECTURE...: reads what ptxas -v wrote into a build's log; fails if a
# hot kernel (its name has product or attend in it) of one of the architectures ("sm_80", "sm_90a") stores more than
# BYTES of spilled registers (other bytes for names with WORD in them), or if the log shows no such kernel for one of
# them: then nothing was checked.
set -eu
log=$1 limits=$2
shift 2
awk -v wanted="$*" -v limits="$limits" '
    BEGIN {
        n = split(limits, limit, ",")
        most = limit[1]
        named = split(wanted, architecture, " ")
        for (i = 1; i <= named; i++) checked[architecture[i]]
        for (i = 2; i <= n; i++) {
            split(limit[i], pair, "=")
            other[pair[1]] = pair[2]
        }
    }
    /Compiling entry function/ {
        split($0, part, "\047")
        name = part[2]
        arch = part[4]
        hot = arch in checked && name ~ /product|attend/
        if (hot) seen[arch]++
    }
    /bytes spill stores/ && hot {
        match($0, /[0-9]+ bytes spill stores, [0-9]+ bytes spill loads/)
        text = substr($0, RSTART, RLENGTH)
        split(text, word, " ")
        allowed = most
        for (part_of in other) if (index(name, part_of)) allowed = other[part_of]
        if (allowed == most && word[1] + 0 > worst) worst = word[1] + 0
        if (word[1] + 0 > allowed + 0) {
            print arch " " name ": " text
            bad++
        }
        hot = 0
    }
    END {
        for (i = 1; i <= named; i++) {
            printf "%s: %d hot kernels\n", architecture[i], seen[architecture[i]]
            if (!seen[architecture[i]]) missing = 1
        }
        printf "largest spill of a hot kernel: %d bytes, %s allowed\n", worst, limits
        if (bad) print bad " hot kernels spill more"
        if (missing) print "an architecture has no hot kernel in the log: was it built from nothing, with -Xptxas=-v?"
        exit bad || missing
    }' "$log"
