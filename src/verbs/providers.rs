//! The providers that are linked into the program.

use std::ffi::c_void;

unsafe extern "C" {
    fn ibv_static_providers(unused: *mut c_void, ...);
}

/// Registers each provider whose archive `build.rs` has found.
macro_rules! register {
    ($($name:literal $descriptor:ident,)*) => {$(
        #[cfg(provider = $name)]
        {
            unsafe extern "C" {
                static $descriptor: c_void;
            }
            // SAFETY: libibverbs reads the arguments after the first one, up to the null pointer. The
            // descriptor is a constant of the linked archive.
            unsafe {
                ibv_static_providers(std::ptr::null_mut(), &raw const $descriptor, std::ptr::null::<c_void>());
            }
        }
    )*};
}

/// Registers the providers with libibverbs, which cannot find any by itself in a static
/// program.
pub fn register() {
    register! {
        "mlx5" verbs_provider_mlx5,
        "mlx4" verbs_provider_mlx4,
        "efa" verbs_provider_efa,
        "mana" verbs_provider_mana,
        "bnxt_re" verbs_provider_bnxt_re,
        "erdma" verbs_provider_erdma,
        "hns" verbs_provider_hns,
        "irdma" verbs_provider_irdma,
        "rxe" verbs_provider_rxe,
        "siw" verbs_provider_siw,
    }
}
