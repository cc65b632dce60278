#!/bin/sh
# check_spills.sh LOG BYTES ARCHITECTURE...: reads what ptxas -v wrote into a build's log; fails if a hot kernel (its name has product or attend in it)
# stores more than BYTES of spilled registers, or if the log shows no such kernel for one of the architectures ("sm_80", "sm_90a"): then nothing was checked.
set -eu
log=$1 most=$2
shift 2
awk -v wanted="$*" -v most="$most" '
    /Compiling entry function/ {
        split($0, part, "\047")
        name = part[2]
        arch = part[4]
        hot = name ~ /product|attend/
        if (hot) seen[arch]++
    }
    /bytes spill stores/ && hot {
        match($0, /[0-9]+ bytes spill stores, [0-9]+ bytes spill loads/)
        text = substr($0, RSTART, RLENGTH)
        split(text, word, " ")
        if (word[1] + 0 > worst) worst = word[1] + 0
        if (word[1] + 0 > most + 0) {
            print arch " " name ": " text
            bad++
        }
        hot = 0
    }
    END {
        n = split(wanted, architecture, " ")
        for (i = 1; i <= n; i++) {
            printf "%s: %d hot kernels\n", architecture[i], seen[architecture[i]]
            if (!seen[architecture[i]]) missing = 1
        }
        printf "largest spill of a hot kernel: %d bytes, %d allowed\n", worst, most
        if (bad) print bad " hot kernels spill more"
        if (missing) print "an architecture has no hot kernel in the log: was it built from nothing, with -Xptxas=-v?"
        exit bad || missing
    }' "$log"
