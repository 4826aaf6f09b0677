"""A client of redis-py that does what it is told, line by line, and answers each with yes or no."""

import sys
import time

import redis
from redis.exceptions import LockError

server = redis.Redis.from_url(sys.argv[1])
locks = {}


def acquire(name, lease, patience):
    """Without a lease the lock never ends, as it is redis-py's default."""
    lock = server.lock(name, timeout=None if lease == "never" else float(lease), sleep=0.02)
    locks[name] = lock
    return lock.acquire(blocking=patience != "0", blocking_timeout=float(patience))


def release(name):
    locks.pop(name).release()
    return True


def extend(name, seconds):
    return locks[name].extend(float(seconds), replace_ttl=True)


def count(name, counter, times):
    """Counts in two steps, which only the lock keeps together."""
    for _ in range(int(times)):
        with server.lock(name, timeout=10, sleep=0.005, blocking_timeout=30):
            before = int(server.get(counter) or 0)
            time.sleep(0.001)
            server.set(counter, before + 1)
    return True


orders = {order.__name__: order for order in (acquire, release, extend, count)}
for line in sys.stdin:
    order, *arguments = line.split()
    try:
        done = orders[order](*arguments)
    except LockError:
        done = False
    print("yes" if done else "no", flush=True)
