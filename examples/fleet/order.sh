#!/bin/sh
# Tells the fleet that CUSTOMER has ordered something: a request whose body is signed with SHOP_SECRET.
# usage: order.sh CUSTOMER
set -eu
body=$(printf '{"customer": "%s", "at": "%s"}' "$1" "$(date --utc --iso-8601=ns)")
signature=$(printf '%s' "$body" | openssl dgst -sha256 -hmac "$SHOP_SECRET" | sed 's/.* //')
curl --silent --show-error --fail-with-body "http://127.0.0.1:${SHOP_PORT:-8765}/hooks/reporter/orders-came" \
    --header "Content-Type: application/json" --header "X-Hub-Signature-256: sha256=$signature" --data "$body"
echo
