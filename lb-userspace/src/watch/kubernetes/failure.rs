//! Why the API gave no answer, or not the one that was asked for, and what that means for us.

use std::error::Error as _;
use std::fmt;

use kube::core::Status;

/// What went wrong with a request or a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// 403: a right is missing.
    Denied,
    /// 404: the API has no such kind.
    Absent,
    /// 410: what we know is too old to go on from; a new list is needed.
    TooOld,
    /// Another 4xx: what was asked does not please it, and asking the same again will not help.
    Refused(String),
    /// It is not well, or too busy. It may answer the same question later.
    Unwell(String),
    /// There was no answer.
    Unreachable(String),
}

impl Failure {
    /// No answer in time.
    pub(super) fn late() -> Self {
        Self::Unreachable("no answer in time".to_owned())
    }

    /// What the server says.
    pub(super) fn of_status(status: &Status) -> Self {
        let said = || format!("{} ({})", status.message, status.code);
        match status.code {
            403 => Self::Denied,
            404 => Self::Absent,
            410 => Self::TooOld,
            // 401 is a token that is being renewed, or an account that is being made.
            401 | 408 | 429 => Self::Unwell(said()),
            400..500 => Self::Refused(said()),
            _ if status.reason == "Expired" || status.reason == "Gone" => Self::TooOld,
            _ => Self::Unwell(said()),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            Self::of_status(status)
        } else if let kube::Error::SerdeError(error) = &error {
            Self::Refused(format!("unreadable answer: {error}"))
        } else {
            Self::Unreachable(innermost(&error))
        }
    }
}

/// "connection refused" says more than "client error", which is what stands outside.
fn innermost(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied => f.write_str("may not"),
            Self::Absent => f.write_str("the API has no such resource (404)"),
            Self::TooOld => f.write_str("what was known is too old (410)"),
            Self::Refused(said) | Self::Unwell(said) | Self::Unreachable(said) => f.write_str(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_means_what_its_code_says() {
        let of = |code, reason: &str| {
            let status = Status::failure("m", reason).with_code(code);
            Failure::of_status(&status)
        };
        assert_eq!(of(403, "Forbidden"), Failure::Denied);
        assert_eq!(of(404, "NotFound"), Failure::Absent);
        assert_eq!(of(410, "Expired"), Failure::TooOld);
        assert_eq!(of(400, "BadRequest"), Failure::Refused("m (400)".into()));
        for code in [401, 429, 500, 503, 504] {
            assert_eq!(of(code, ""), Failure::Unwell(format!("m ({code})")));
        }
    }
}
