#!/usr/bin/env bash
# Runs every fuzz target: scripts/fuzz-all.sh [OPTION]... [SECONDS]
#
#   SECONDS          time for each target, 60 if it is not given
#   --total SECONDS  time for all targets together, divided equally
#   --jobs N         number of targets that run at a time, 1 if it is not given
#   --target NAME    runs this target alone; can be repeated
#   --corpus DIR     corpora, by target; fuzz/corpus if it is not given. A later run goes on from there
#   --minimize       reduces each corpus to the inputs that reach something of their own, instead of a run
#   --report         prints the sums of all runs so far, instead of a run
#
# Inputs that fail go to fuzz/artifacts. Each run adds a line to runs.tsv of the corpora: date, commit, target, seconds of
# CPU, executions, cov, ft, inputs in the corpus, new ones, failures. A stable toolchain suffices:
# RUSTC_BOOTSTRAP makes it accept the sanitizer flags that cargo-fuzz passes.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "fuzz-all: $1" >&2; exit 1; }
number() { [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || fail "$1 needs a number above 0, not \"${2:-}\""; }

seconds=60 total=0 jobs=1 corpora=fuzz/corpus action=run chosen=()
while [ $# -gt 0 ]; do
    case $1 in
        --total) number "$1" "${2:-}"; total=$2; shift ;;
        --jobs) number "$1" "${2:-}"; jobs=$2; shift ;;
        --target) [ -n "${2:-}" ] || fail "$1 needs a name"; chosen+=("$2"); shift ;;
        --corpus) [ -n "${2:-}" ] || fail "$1 needs a directory"; corpora=$2; shift ;;
        --minimize) action=minimize ;;
        --report) action=report ;;
        *) number SECONDS "$1"; seconds=$1 ;;
    esac
    shift
done
mkdir -p "$corpora" fuzz/artifacts
runs=$corpora/runs.tsv

if [ "$action" = report ]; then
    [ -e "$runs" ] || fail "no run so far: $runs does not exist"
    echo "| target | CPU time, min | executions | cov | ft | corpus | failures |"
    echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    # Sums of time, executions and failures; the last coverage and corpus.
    awk -F '\t' '{ time[$3] += $4; runs[$3] += $5; cov[$3] = $6; ft[$3] = $7; corpus[$3] = $8; bad[$3] += $10 }
        END { for (t in time) printf "| `%s` | %.1f | %d | %d | %d | %d | %d |\n", t, time[t] / 60, runs[t], cov[t],
            ft[t], corpus[t], bad[t] }' "$runs" | sort
    exit
fi

cargo_fuzz=0.13.2
[ "$(cargo fuzz --version 2>/dev/null)" = "cargo-fuzz $cargo_fuzz" ] ||
    cargo install cargo-fuzz --version "$cargo_fuzz" --locked --quiet
# cargo-fuzz has no --locked: a lock file that is out of date fails here.
manifest=$(cargo metadata --manifest-path fuzz/Cargo.toml --locked --no-deps --format-version 1) ||
    fail "fuzz/Cargo.lock does not match fuzz/Cargo.toml"
listed=$(cargo fuzz list) || fail "\`cargo fuzz list\` failed"
mapfile -t targets <<<"$listed"
# Each program of the manifest must be in the list.
mapfile -t programs < <(grep -oE '"kind":\["bin"\][^}]*"name":"[^"]*"' <<<"$manifest" | sed 's/.*"name":"//; s/"$//')
[ "${#programs[@]}" -gt 0 ] || fail "fuzz/Cargo.toml has no programs"
[ "$(printf '%s\n' "${programs[@]}" | sort)" = "$(printf '%s\n' "${targets[@]}" | sort)" ] ||
    fail "\`cargo fuzz list\` says [${targets[*]}], fuzz/Cargo.toml has [${programs[*]}]"
if [ "${#chosen[@]}" -gt 0 ]; then
    for target in "${chosen[@]}"; do
        printf '%s\n' "${targets[@]}" | grep -qxF -- "$target" || fail "no target \"$target\"; there are: ${targets[*]}"
    done
    targets=("${chosen[@]}")
fi
[ "$total" -eq 0 ] || seconds=$((total / ${#targets[@]}))
[ "$seconds" -gt 0 ] || fail "$total seconds are too few for ${#targets[@]} targets"

export RUSTC_BOOTSTRAP=1
cargo fuzz build
triple=$(rustc -vV | sed -n 's/^host: //p')
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
export triple commit corpora runs seconds action

# Prints the value of a final statistic, or 0.
stat() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1 | grep . || echo 0; }
# Prints the number behind a word of the last status line, or 0.
status() { grep -E '^#[0-9]+.* cov: ' "$1" | tail -n 1 | grep -oE " $2: [0-9]+" | grep -oE '[0-9]+' || echo 0; }

run() {
    local target=$1 program=fuzz/target/$triple/release/$1 corpus=$corpora/$1 log inputs bad=0
    [ -x "$program" ] || { echo "fuzz-all: $target was not built: $program" >&2; return 1; }
    mkdir -p "$corpus" "fuzz/artifacts/$target"
    log=$(mktemp)
    if [ "$action" = minimize ]; then
        mkdir -p "$corpus.small"
        "$program" -merge=1 -detect_leaks=0 -rss_limit_mb=2048 "$corpus.small" "$corpus" >"$log" 2>&1 ||
            { tail -n 60 "$log"; return 1; }
        printf '%-16s %6d inputs of %d stay\n' "$target" "$(find "$corpus.small" -type f | wc -l)" "$(find "$corpus" -type f | wc -l)"
        rm -r "$corpus" "$log"
        mv "$corpus.small" "$corpus"
        return
    fi
    # New inputs go to the corpus; the seeds are only read.
    inputs=("$corpus")
    [ ! -d "fuzz/seeds/$target" ] || inputs+=("fuzz/seeds/$target")
    # Leak detection needs ptrace, which containers often refuse; memory is owned by safe Rust here. The limit of time for an
    # input counts real time: a target that runs beside other work may get a hundredth of a processor.
    local TIMEFORMAT='%U %S' took done corpus_size new
    took=$({ time "$program" "${inputs[@]}" -max_total_time="$seconds" -detect_leaks=0 -rss_limit_mb=2048 \
        -timeout=120 -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 >"$log" 2>&1 || bad=1; \
        echo "$bad" >"$log.bad"; } 2>&1 | awk '{ printf "%.0f", $1 + $2 }')
    bad=$(cat "$log.bad")
    done=$(stat "$log" number_of_executed_units) new=$(stat "$log" new_units_added)
    corpus_size=$(find "$corpus" -type f | wc -l)
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date +%FT%T)" "$commit" "$target" "$took" "$done" \
        "$(status "$log" cov)" "$(status "$log" ft)" "$corpus_size" "$new" "$bad" >>"$runs"
    printf '%-16s %5d s of CPU, %10d executions, cov %5d, ft %6d, corpus %5d, %4d new\n' "$target" "$took" "$done" \
        "$(status "$log" cov)" "$(status "$log" ft)" "$corpus_size" "$new"
    [ "$bad" -eq 0 ] || { echo "-- $target failed"; tail -n 60 "$log"; }
    # A target that executed nothing has tested nothing.
    [ "$done" -gt 0 ] || { [ "$bad" -eq 1 ] || { echo "-- $target executed nothing"; tail -n 20 "$log"; }; bad=1; }
    rm -f "$log" "$log.bad"
    return "$bad"
}
export -f run stat status

# xargs fails if any of the targets fails, after all have run.
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I {} bash -c 'run "$1"' _ {}
