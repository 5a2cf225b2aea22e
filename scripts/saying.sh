# How the demos speak: `say TEXT` is a heading, `show ARGS...` runs ringfence and says how it was called.
# The one who sources it sets $ringfence.

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || say() { printf '\n# %s\n' "$*"; }
show() {
    printf '$ ringfence'
    # A word with a space is shown in quotes, as one would type it.
    for word in "$@"; do
        case $word in *' '*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$ringfence" "$@"
}
