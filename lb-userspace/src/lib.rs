//! Sluice's agent as a library.

pub mod cli {
    //! Subcommands: one file each, nothing but arguments, joining and printing.

    pub mod endpoints;
    pub mod flows;
    pub mod output;
    pub mod services;
    pub mod status;
    #[cfg(test)]
    mod tests;
}
pub mod desired;
pub mod observe;
pub mod plan;
pub mod timer;
