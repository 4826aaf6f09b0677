//! Access to the agent: the URL and the environment, the token, connections, HTTP requests, and refusals as errors.

mod connector;
pub(crate) mod environment;
pub(crate) mod http;
pub(crate) mod settings;
mod socket;
mod tls;
mod token;
