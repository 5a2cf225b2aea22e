#!/usr/bin/env bash
# Verifies an attestation. Inputs are read from the environment; files of the pull request are read, and never executed.
set -euo pipefail

cd "$RUNNER_TEMP"
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT

in_workspace() {
    case "$1" in
        /*) printf '%s' "$1" ;;
        *) printf '%s' "$GITHUB_WORKSPACE/$1" ;;
    esac
}

words=(attest verify "--tree=$(in_workspace "$INPUT_TREE")" "--commit=${INPUT_COMMIT:-HEAD}")
if [ -n "$INPUT_KEYS" ]; then
    printf '%s\n' "$INPUT_KEYS" > "$own/keys"
    words+=("--key=$own/keys")
fi
if [ -n "$INPUT_KEYS_FILE" ]; then
    words+=("--key=$(in_workspace "$INPUT_KEYS_FILE")")
fi
if [ -z "$INPUT_KEYS$INPUT_KEYS_FILE" ]; then
    echo "no key is trusted; give the input 'keys', or 'keys-file' from the base branch" >&2
    exit 2
fi
if [ -n "$INPUT_CHECK" ]; then
    words+=("--check=$INPUT_CHECK")
fi
case "$INPUT_ANY_STATE" in
    true) words+=(--any-state) ;;
    false | "") ;;
    *)
        echo "the input 'any-state' is neither true nor false" >&2
        exit 2
        ;;
esac
while IFS= read -r anchor; do
    if [ -n "$anchor" ]; then
        words+=("--anchor=$anchor")
    fi
done <<< "$INPUT_ANCHORS"
if [ -n "$INPUT_TSA_CERTIFICATE" ]; then
    printf '%s\n' "$INPUT_TSA_CERTIFICATE" > "$own/authorities.pem"
    words+=("--tsa-certificate=$own/authorities.pem")
fi
if [ -n "$INPUT_ATTESTATION" ]; then
    words+=(-- "$(in_workspace "$INPUT_ATTESTATION")")
fi

# Names of files are printed, and no line of the output may be a command for the runner.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$token"
code=0
"$RUNNER_TEMP/ringfence/bin/ringfence" "${words[@]}" || code=$?
echo "::$token::"
exit "$code"
