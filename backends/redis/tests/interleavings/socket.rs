//! The files about one connection, and the client and the server that they talk to.

#[path = "../../src/socket/ended.rs"]
pub(crate) mod ended;
#[path = "../../src/socket/first_step.rs"]
pub(crate) mod first_step;

pub(crate) mod server {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use ::redis::{Arg, Cmd, Pipeline, RedisError, RedisResult, Value};
    use dlock_contract::Error;
    use shuttle::rand::{Rng, thread_rng};

    use crate::scripts::exclusive::SCRIPTS;
    use crate::sync::{Mutex, yield_now};

    #[derive(Clone)]
    pub(crate) struct Wire {
        pub(crate) client: Client,
    }

    impl Wire {
        pub(crate) fn fault(&self, _: &RedisError) -> Error {
            Error::outage("the connection has ended")
        }
    }

    #[derive(Clone)]
    pub(crate) struct Client(pub(crate) Arc<Mutex<Server>>);

    impl Client {
        pub(crate) async fn send_packed_command(&mut self, command: &Cmd) -> RedisResult<Value> {
            Ok(self.send(&mut [command].into_iter()).await.remove(0))
        }

        pub(crate) async fn send_packed_commands(
            &mut self,
            pipeline: &Pipeline,
            _: usize,
            _: usize,
        ) -> RedisResult<Vec<Value>> {
            Ok(self.send(&mut pipeline.cmd_iter()).await)
        }

        /// The requests reach the server in the first poll, and the answers come later.
        async fn send(&self, commands: &mut (dyn Iterator<Item = &Cmd> + Send)) -> Vec<Value> {
            let answers = self.server().run_all(commands);
            for _ in 0..thread_rng().gen_range(1..4) {
                yield_now().await;
            }
            if self.server().has_ended {
                // The client has lost the request, and tells nobody.
                std::future::pending::<()>().await;
            }
            answers
        }

        fn server(&self) -> crate::sync::MutexGuard<'_, Server> {
            self.0.lock().unwrap()
        }
    }

    /// A Redis that knows the requests of a lock.
    #[derive(Default)]
    pub(crate) struct Server {
        pub(crate) locks: BTreeMap<Vec<u8>, Vec<u8>>,
        pub(crate) fence: i64,
        /// The owners, as they asked for their lock or released it.
        pub(crate) log: Vec<(Asked, Vec<u8>)>,
        pub(crate) has_ended: bool,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Asked {
        Lock,
        Release,
    }

    impl Server {
        fn run_all(&mut self, commands: &mut dyn Iterator<Item = &Cmd>) -> Vec<Value> {
            commands.map(|command| self.run(command)).collect()
        }

        fn run(&mut self, command: &Cmd) -> Value {
            let words: Vec<&[u8]> = command
                .args_iter()
                .map(|word| if let Arg::Simple(word) = word { word } else { panic!("no request of a lock") })
                .collect();
            let number = |word: &[u8]| std::str::from_utf8(word).unwrap().parse::<i64>().unwrap();
            match words[..] {
                [b"PING"] => Value::Okay,
                [b"SET", name, owner, b"NX"] => {
                    self.log.push((Asked::Lock, owner.to_vec()));
                    if self.locks.contains_key(name) {
                        return Value::Nil;
                    }
                    self.locks.insert(name.to_vec(), owner.to_vec());
                    Value::Okay
                }
                [b"INCRBY", _, tokens] => {
                    self.fence += number(tokens);
                    Value::Int(self.fence)
                }
                [b"EVALSHA", script, count, ref locks @ ..] => {
                    let (names, owners) = locks.split_at(number(count) as usize);
                    let done = names.iter().zip(owners).map(|(name, owner)| self.release(name, owner));
                    let mut done: Vec<_> = done.collect();
                    if script == SCRIPTS.release_all.digest.as_bytes() { Value::Array(done) } else { done.remove(0) }
                }
                _ => panic!("no request of a lock"),
            }
        }

        fn release(&mut self, name: &[u8], owner: &[u8]) -> Value {
            self.log.push((Asked::Release, owner.to_vec()));
            let is_own = self.locks.get(name).is_some_and(|holder| holder == owner);
            if is_own {
                self.locks.remove(name);
            }
            Value::Int(is_own.into())
        }
    }
}
