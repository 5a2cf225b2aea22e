"""Is the shop well? Orders are taken, and none fails meanwhile. Asks the service itself, and nobody's word."""

import sys
import time
import urllib.error
import urllib.request

SHOP = "http://127.0.0.1:8080"
PATIENCE_S = 10.0
ORDERS = 5


def asked(path: str, data: bytes | None = None) -> tuple[int, str]:
    """Status and text of an answer; status 0 if there was none."""
    try:
        with urllib.request.urlopen(SHOP + path, data, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def failures() -> int:
    """How many orders have failed, by the metrics page."""
    for line in asked("/metrics")[1].splitlines():
        name, _, value = line.partition(" ")
        if name == "shop_orders_failed_total":
            return int(value)
    return -1


deadline = time.monotonic() + PATIENCE_S
while (came := asked("/orders", b"{}"))[0] != 201 and time.monotonic() < deadline:
    time.sleep(0.5)
before = failures()
answers = [asked("/orders", b"{}") for _ in range(ORDERS)]
after = failures()
wrong = [f"{status} {text.strip()}" for status, text in [came, *answers] if status != 201]
print(f"{len(answers) + 1 - len(wrong)} of {len(answers) + 1} orders taken, {after - before} failed meanwhile")
for text in wrong:
    print("not taken:", text)
sys.exit(0 if not wrong and before >= 0 and after == before else 1)
