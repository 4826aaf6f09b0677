"""One of the processes that want the key, with python-redis-lock: what `contend` in contended.rs is for dlock."""

import os
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import redis
import redis_lock

HOLD = 0.001

tasks, process = int(os.environ["BENCH_TASKS"]), int(os.environ["BENCH_PROCESS"])
seconds = int(os.environ["BENCH_MILLIS"]) / 1000
last = os.open(os.environ["BENCH_NOTE"], os.O_RDWR)


def connect():
    """A connection for each thread, made before the beginning: whoever waits in BLPOP needs one to himself."""
    client = redis.Redis.from_url(os.environ["BENCH_URL"], socket_timeout=None)
    client.ping()
    return client


def beginning():
    """Waits to be told when all begin, once every process is there."""
    print("up", flush=True)
    while not os.path.exists(os.environ["BENCH_BEGIN"]):
        time.sleep(0.01)
    with open(os.environ["BENCH_BEGIN"]) as told:
        return int(told.read()) / 1000


def contend(task):
    """Locks until the time is over; returns the hand-overs, each wait in µs, and when the last one ended."""
    client, own = clients[task], struct.pack("<Q", 1 + process * 1000 + task)
    time.sleep(max(0, begin - time.time()))
    end = time.monotonic() + seconds
    hand_overs, waits = 0, []
    while (begun := time.monotonic()) < end:
        lock = redis_lock.Lock(client, "bench:hot", expire=10)
        lock.acquire()
        before = os.pread(last, 8, 0)
        os.pwrite(last, own, 0)
        time.sleep(HOLD)
        lock.release()
        hand_overs += before != own
        waits.append(max(0, int((time.monotonic() - begun - HOLD) * 1e6)))
    return hand_overs, waits, time.time()


clients = [connect() for _ in range(tasks)]
begin = beginning()
with ThreadPoolExecutor(tasks) as threads:
    seen = list(threads.map(contend, range(tasks)))
micros = int((max(ended for _, _, ended in seen) - begin) * 1e6)
numbers = [sum(hand_overs for hand_overs, _, _ in seen), micros, tasks]
numbers += [len(waits) for _, waits, _ in seen]
numbers += [wait for _, waits, _ in seen for wait in waits]
print("seen", *numbers, flush=True)
