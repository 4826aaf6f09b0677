//! Fenced writes to redis.
