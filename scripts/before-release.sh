#!/usr/bin/env bash
# What must hold before a release, beside .ci/run: the public API breaks no promise since the last release, and all packages
# can be published.
#
# scripts/semver-baseline has the commit of the last release, alone on its line. It is absent before the first one; then
# there is nothing to compare with. Needs cargo-semver-checks (cargo install cargo-semver-checks --locked).
set -euo pipefail
cd "$(dirname "$0")/.."
unpublished=(rpcrdma-xtask rpcrdma-fuzz-targets rpcrdma-xdrgen-tests rpcrdma-examples-kv)
exclude=()
for package in "${unpublished[@]}"; do exclude+=(--exclude "$package"); done

baseline=scripts/semver-baseline
if [ -f "$baseline" ]; then
    commit=$(tr -d '[:space:]' <"$baseline")
    git rev-parse --verify --quiet "$commit^{commit}" >/dev/null || {
        echo "before-release: $baseline names $commit, which is no commit here" >&2
        exit 1
    }
    command -v cargo-semver-checks >/dev/null || {
        echo "before-release: cargo-semver-checks is missing (cargo install cargo-semver-checks --locked)" >&2
        exit 1
    }
    cargo semver-checks --workspace "${exclude[@]}" --baseline-rev "$commit"
else
    echo "before-release: $baseline is absent, so this is the first release: there is no API to compare with"
fi

cargo publish --workspace "${exclude[@]}" --locked --dry-run
echo "before-release: all packages can be published"
