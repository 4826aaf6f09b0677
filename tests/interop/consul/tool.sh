# So many loops of `consul lock` beside dlock. Waits for a line on its input, so that all begin together; then tells its holds.
# Arguments: the program, the agent's URL, the prefix, number of loops, seconds.
echo up
read -r _
end=$(($(date +%s) + $5))
loop() {
    holds=0
    while [ "$(date +%s)" -lt "$end" ]; do
        "$1" lock -http-addr="$2" "$3" true >/dev/null 2>&1 && holds=$((holds + 1))
    done
    echo "$holds"
}
{
    for _ in $(seq "$4"); do
        loop "$@" &
    done
    wait
} | awk '{ sum += $1 } END { print "seen", sum, 0 }'
