#!/bin/sh
# Makes .venv with everything the project needs, as uv.lock has it. A second call with nothing changed is instant.
#
# Honoured: PYTHON (the interpreter to use), and what pip and uv read themselves (PIP_*, UV_*, SSL_CERT_FILE).
set -eu
cd "$(dirname "$0")/.."

venv="$PWD/.venv"
stamp="$venv/.setup-done"
oldest="3, 11"

say() { printf 'setup: %s\n' "$*" >&2; }

# What was set up: for which lock, where (scripts in a venv hold absolute paths), by whom.
wanted="$(cat pyproject.toml uv.lock scripts/setup.sh | cksum) $venv"

is_new_enough() {
    "$1" -I -c "import sys; raise SystemExit(sys.version_info < ($oldest))" 2>/dev/null
}

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        # A name that cannot be run (a shim without its version) is passed over like one that is absent.
        if command -v "$name" >/dev/null 2>&1 && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    say "no Python 3.11 or newer was found (looked for python3, python3.11 to python3.14)."
    say "On Debian 12 or newer: apt-get install python3 python3-venv"
    say "If it is installed elsewhere: make setup PYTHON=/path/to/python3.11"
    return 1
}

own_uv() { command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; }

# Each way in turn, the ones that bring pip along first.
make_venv() {
    python=$1
    if "$python" -I -c 'import ensurepip, venv' 2>/dev/null; then
        "$python" -m venv --clear "$venv"
    elif own_uv; then
        uv venv --quiet --clear --no-python-downloads --python "$python" "$venv"
    elif "$python" -I -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv --quiet --clear --python "$python" "$venv"
    elif "$python" -I -m pip --version >/dev/null 2>&1 && "$python" -I -c 'import venv' 2>/dev/null; then
        "$python" -m venv --clear --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install --quiet --disable-pip-version-check pip
    else
        say_what_is_missing "$python"
        return 1
    fi
}

say_what_is_missing() {
    version=$("$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "$1 (Python $version) cannot make a virtual environment: its ensurepip is missing,"
    say "and neither uv nor virtualenv nor pip is there to stand in for it."
    if command -v apt-get >/dev/null 2>&1; then
        as_root=""
        [ "$(id -u)" = 0 ] || as_root="sudo "
        package="python3-venv"
        # Debian splits ensurepip off each version; for one that is not the default it has its own name.
        [ "$(/usr/bin/python3 -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ] ||
            package="python$version-venv"
        say "Install the Debian package $package, then try again:"
        say "    ${as_root}apt-get update && ${as_root}apt-get install --yes $package"
    else
        say "Install your system's package for Python's venv module, or uv, then try again."
    fi
}

find_uv() {
    if [ -x "$venv/bin/uv" ] && "$venv/bin/uv" --version >/dev/null 2>&1; then
        echo "$venv/bin/uv"
    elif [ -x "$venv/bin/pip" ] && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.5,<1' >&2; then
        echo "$venv/bin/uv"
    elif own_uv; then
        command -v uv
    else
        say "uv could not be installed into .venv (see above); is there a way to a package index?"
        return 1
    fi
}

if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && is_new_enough "$venv/bin/python"; then
    exit 0
fi

# A venv that came here by copy, or whose Python is gone, is made anew.
if ! { [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" &&
    grep -qs "^VIRTUAL_ENV=['\"]\{0,1\}$venv['\"]\{0,1\}\$" "$venv/bin/activate"; }; then
    python=$(find_python)
    say "making .venv with $python"
    make_venv "$python"
fi

uv=$(find_uv)
say "installing what uv.lock names"
# The system's certificates (a company's own authority is there), under both of uv's names for the wish.
certificates="UV_SYSTEM_CERTS=1"
"$uv" sync --help 2>/dev/null | grep -q -- --system-certs || certificates="UV_NATIVE_TLS=1"
env "$certificates" UV_PROJECT_ENVIRONMENT="$venv" UV_PYTHON_DOWNLOADS=never \
    "$uv" sync --quiet --frozen --inexact --python "$venv/bin/python"
# Once for all: where PYTHONDONTWRITEBYTECODE is set each start would compile everything anew (0.2 s instead of 0.1).
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -m compileall -q -j 0 "$venv/lib" src || say "could not precompile; starts are slower"
printf '%s\n' "$wanted" >"$stamp"
say "done: .venv/bin/ringfence"
