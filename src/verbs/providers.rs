//! The providers that are linked in.

use std::ffi::c_void;

unsafe extern "C" {
    static verbs_provider_bnxt_re: c_void;
    static verbs_provider_efa: c_void;
    static verbs_provider_erdma: c_void;
    static verbs_provider_hns: c_void;
    static verbs_provider_irdma: c_void;
    static verbs_provider_mana: c_void;
    static verbs_provider_mlx4: c_void;
    static verbs_provider_mlx5: c_void;
    static verbs_provider_rxe: c_void;
    static verbs_provider_siw: c_void;

    fn ibv_static_providers(unused: *mut c_void, ...);
}

/// Makes the providers known to libibverbs, which finds none by itself in a
/// static program. `build.rs` links the same list.
pub fn register() {
    // SAFETY: libibverbs reads the descriptors behind the addresses up to the
    // null pointer; they are constants of the linked archives.
    unsafe {
        ibv_static_providers(
            std::ptr::null_mut(),
            &raw const verbs_provider_bnxt_re,
            &raw const verbs_provider_efa,
            &raw const verbs_provider_erdma,
            &raw const verbs_provider_hns,
            &raw const verbs_provider_irdma,
            &raw const verbs_provider_mana,
            &raw const verbs_provider_mlx4,
            &raw const verbs_provider_mlx5,
            &raw const verbs_provider_rxe,
            &raw const verbs_provider_siw,
            std::ptr::null::<c_void>(),
        );
    }
}
