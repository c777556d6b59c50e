//! The providers that are linked into the program.

use std::ffi::c_void;

unsafe extern "C" {
    fn ibv_static_providers(unused: *mut c_void, ...);
}

/// The providers, each with its descriptor and with its devices' kernel drivers as sysfs names them. A
/// provider counts only if `build.rs` has found its archive.
macro_rules! providers {
    ($($name:literal $descriptor:ident of $drivers:pat,)*) => {
        /// Registers the providers with libibverbs, which cannot find any by itself in a static
        /// program.
        pub(crate) fn register() {$(
            #[cfg(provider = $name)]
            {
                unsafe extern "C" {
                    static $descriptor: c_void;
                }
                // SAFETY: libibverbs reads the arguments after the first one, up to the null pointer. The
                // descriptor is a constant of the linked archive.
                unsafe {
                    ibv_static_providers(
                        std::ptr::null_mut(),
                        &raw const $descriptor,
                        std::ptr::null::<c_void>(),
                    );
                }
            }
        )*}

        /// Returns whether one of the providers serves the devices of this kernel driver.
        pub(crate) fn serve(driver: &str) -> bool {
            $(
                #[cfg(provider = $name)]
                if matches!(driver, $drivers) {
                    return true;
                }
            )*
            false
        }
    };
}

providers! {
    "mlx5" verbs_provider_mlx5 of "mlx5_core",
    "mlx4" verbs_provider_mlx4 of "mlx4_core",
    "efa" verbs_provider_efa of "efa",
    "mana" verbs_provider_mana of "mana",
    "bnxt_re" verbs_provider_bnxt_re of "bnxt_en",
    "cxgb4" verbs_provider_cxgb4 of "cxgb4",
    "erdma" verbs_provider_erdma of "erdma",
    "hfi1verbs" verbs_provider_hfi1verbs of "hfi1",
    "hns" verbs_provider_hns of "hns3",
    "ipathverbs" verbs_provider_ipathverbs of "ib_qib",
    "irdma" verbs_provider_irdma of "ice" | "i40e" | "irdma",
    "mthca" verbs_provider_mthca of "ib_mthca",
    "ocrdma" verbs_provider_ocrdma of "be2net",
    "qedr" verbs_provider_qedr of "qede",
    "rxe" verbs_provider_rxe of "rdma_rxe",
    "siw" verbs_provider_siw of "siw",
    "vmw_pvrdma" verbs_provider_vmw_pvrdma of "vmw_pvrdma",
}

#[cfg(test)]
mod tests {
    use super::serve;

    #[test]
    fn drivers_are_told_from_those_without_a_provider() {
        for driver in ["mlx5_core", "bnxt_en", "ice", "efa"] {
            assert!(serve(driver), "{driver}");
        }
        assert!(!serve("ionic_of_tomorrow"));
    }
}
