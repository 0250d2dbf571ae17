//! The load of one trial on this agent: pacer → dispatcher → requests in flight → drain.
//!
//! Three parts, so that each can be understood and tested alone. [`pacer`] is a thread that knows only instants, and
//! [`lead`] how early it has to speak.
//! [`dispatcher`] is a pure state machine that knows permits and deadlines. [`run`] is the shell on the load thread
//! that turns the dispatcher's effects into requests. [`trial`] is the order of things from Prepare to the drain, and
//! [`thread`] gives it all a thread of its own, apart from the session with the coordinator: no disk and no control traffic
//! on the path of a request.
//!
//! Must never: wait for a response before an arrival, move an arrival, or keep the thread that reads streams from reading.

pub mod counters;
pub mod dispatcher;
pub mod lead;
pub mod pacer;
pub mod run;
pub mod scheduling;
pub mod thread;
pub mod trial;
pub mod warmup;
