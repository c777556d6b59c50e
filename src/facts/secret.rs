//! Recognizes variables whose values may be secrets by their names.

/// The text to show instead of such a value.
pub(crate) const HIDDEN: &str = "(not shown)";

/// Words in the names of secrets, in upper case.
const WORDS: [&str; 5] = ["TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL"];

/// Part of the names of variables that contain the index of a partition key in the HCA's table (InfiniBand
/// specification, P_Key). Other libraries than NCCL have such a variable, too.
const PARTITION_KEY: &str = "IB_PKEY";

/// Returns whether the variable with this name may contain a secret. No variable that NCCL itself reads does;
/// a test checks all of them.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace(PARTITION_KEY, "");
    WORDS.iter().any(|word| name.contains(word))
}

/// Returns the value in the form in which it may be shown.
pub(crate) fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if is_secret(name) { HIDDEN } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_recognized() {
        for name in [
            "NCCL_PLUGIN_TOKEN",
            "nccl_api_key",
            "WANDB_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "T_PASSWORD",
            "T_PASSWD",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "NCCL_IB_PKEY_TOKEN",
        ] {
            assert!(is_secret(name), "{name}");
            assert_eq!(shown(name, "hunter2"), HIDDEN);
        }
        for name in ["NCCL_IB_HCA", "NCCL_IB_PKEY", "UCX_IB_PKEY", "OMPI_MCA_btl_openib_pkey", ""] {
            assert!(!is_secret(name), "{name}");
            assert_eq!(shown(name, "1"), "1");
        }
    }
}
