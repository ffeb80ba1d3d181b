//! The Kubernetes source against an API server that does as it is told: what is asked, what is
//! made of the answers, and above all what is not made of answers that do not come.

mod fake;
mod lists;
mod objects;
mod outages;
mod rights;
mod stage;
mod watches;
