//! The way to the agent: the URL and the environment, the token, the connections, HTTP requests, and refusals as errors.

mod connector;
pub(crate) mod environment;
pub(crate) mod http;
pub(crate) mod settings;
mod tls;
mod token;
