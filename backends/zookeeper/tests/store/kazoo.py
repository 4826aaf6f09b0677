# Orders on the standard input, one line each: `lock`, `read` or `write` to take, with a time limit in seconds (0: do not
# wait), and `free`. The answer is `yes` or `no`.
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

hosts, path, extra = sys.argv[1:4]
client = KazooClient(hosts=hosts)
client.start()
patterns = [extra] if extra else []
kinds = {"lock": client.Lock, "read": client.ReadLock, "write": client.WriteLock}
held = None
for line in sys.stdin:
    word, *limit = line.split()
    if word == "free":
        held.release()
        answer = True
    else:
        lock = kinds[word](path, "theirs", extra_lock_patterns=patterns)
        seconds = float(limit[0])
        try:
            answer = lock.acquire(timeout=seconds) if seconds else lock.acquire(blocking=False)
        except LockTimeout:
            answer = False
        held = lock if answer else held
    print("yes" if answer else "no", flush=True)
