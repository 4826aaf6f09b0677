# kazoo's locks, or its writers, beside dlock: so many threads want one lock.
#
# Waits for a line on its input, so that all begin together; then tells its holds and its failures. Arguments: hosts, path of
# the lock, path of the counter, a pattern of other tools' nodes or nothing, number of threads, seconds, `lock` or `readwrite`.
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

hosts, path, counter, extra, threads, seconds, kind = sys.argv[1:8]
patterns = [extra] if extra else []
client = KazooClient(hosts=hosts)
client.start()
take_lock = {"lock": client.Lock, "readwrite": client.WriteLock}[kind]


def number():
    return int(client.get(counter)[0])


def count():
    # In two steps, which only the lock keeps together.
    before = number()
    time.sleep(0.001)
    client.set(counter, str(before + 1).encode())


def take(end, results):
    holds = failures = 0
    while time.monotonic() < end:
        lock = take_lock(path, "theirs", extra_lock_patterns=patterns)
        try:
            lock.acquire(timeout=30)
        except LockTimeout:
            failures += 1
            continue
        try:
            count()
        finally:
            lock.release()
        holds += 1
    results.append((holds, failures))


print("up", flush=True)
sys.stdin.readline()
end, results = time.monotonic() + float(seconds), []
workers = [threading.Thread(target=take, args=(end, results)) for _ in range(int(threads))]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
# A thread that failed has told nothing.
assert len(results) == int(threads), "its error is above"
print("seen", sum(holds for holds, _ in results), sum(failures for _, failures in results), flush=True)
client.stop()
