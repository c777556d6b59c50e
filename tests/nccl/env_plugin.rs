//! Tests which env plugin NCCL loads. The model sees the files as the program's readers find them, and
//! predicts when the library uses the plugin's answers.

use rdma_init::facts::Facts;
use rdma_init::image::library::Library as File;
use rdma_init::libraries::nccl::env_plugin::{VARIABLE, loaded};
use rdma_init::libraries::nccl::version::READS_ENV_PLUGIN;

use super::driver::Nccl;
use super::libibverbs::in_image_of_driver;
use super::model::{Environment, case, observed, version};
use crate::support::nccl::{Library, driver, some};

/// The HCAs that NCCL uses if the environment names one and the plugin another.
const OF_ENVIRONMENT: &str = "mlx5_1:1/RoCE";
const OF_PLUGIN: &str = "mlx5_2:1/RoCE";

fn facts(library: &Library, value: Option<&str>, folders: &[&std::path::Path]) -> Facts {
    let set: Vec<(&str, &str)> = value.into_iter().map(|value| (VARIABLE, value)).collect();
    let mut facts = in_image_of_driver(&set, folders);
    // The driver opens NCCL by a path that no reader searches.
    if let Some(image) = &mut facts.image {
        image.nccl = vec![File { path: library.path.clone(), ..File::default() }];
    }
    facts
}

#[test]
fn its_answers_replace_the_environment_where_it_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = driver().join("libnccl-env-test.so");
    std::fs::copy(&plugin, folder.path().join("libnccl-env.so")).unwrap();
    let searched = [folder.path()];
    let cases: [(Option<&str>, bool, bool); 9] = [
        (None, false, false),
        (None, true, true),
        (Some(""), true, true),
        (Some("test"), false, true),
        (Some("libnccl-env-test.so"), false, true),
        (plugin.to_str(), false, true),
        (Some("/missing/plugin.so"), true, false),
        (Some("absent"), true, false),
        (Some("NONE"), true, false),
    ];
    for library in some(&["2.27.7", "2.28.9"]) {
        let knows_plugins = version(&library) >= READS_ENV_PLUGIN;
        // The loader reads its directories when the process starts.
        let mut started = [&[][..], &searched].map(|folders| Nccl::start_with(&library, folders));
        for (value, in_folder, is_loaded) in cases {
            let folders: &[&std::path::Path] = if in_folder { &searched } else { &[] };
            let facts = facts(&library, value, folders);
            let mut environment: Environment = vec![("NCCL_IB_HCA".to_owned(), "=mlx5_1".to_owned())];
            environment.extend(value.map(|value| (VARIABLE.to_owned(), value.to_owned())));
            let nccl = &mut started[usize::from(in_folder)];
            let outcome = nccl.run(&[case(&facts, &environment)]).remove(0);
            let name = format!("NCCL {} with {value:?}, default {in_folder}", library.version);
            let wanted = if is_loaded && knows_plugins { OF_PLUGIN } else { OF_ENVIRONMENT };
            let found = observed(&outcome);
            assert_eq!(found.ports.keys().collect::<Vec<_>>(), [wanted], "{name}: {}", outcome.log);
            let get = |name: &str| value.filter(|_| name == VARIABLE);
            assert_eq!(loaded(&facts, get, version(&library)).is_some(), wanted == OF_PLUGIN, "{name}");
        }
    }
}
