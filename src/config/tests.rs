use super::*;
use crate::init::{Remap, Rewrite};
use crate::libraries::{self, Wanted};
use crate::plan::{DefaultRouteOption, ProfileOption};
use crate::state::StateDir;
use std::collections::BTreeSet;
use std::fs;

fn config(file: &str, variables: &[(&str, &str)], flags: Vec<(&str, Value)>) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    fs::write(&path, file).unwrap();
    let path = path.to_str().unwrap();
    let mut all = vec![("RDMA_INIT_CONFIG", path)];
    all.extend(variables);
    let entries: Vec<_> =
        all.iter().map(|(k, v)| std::ffi::CString::new(format!("{k}={v}")).unwrap()).collect();
    let flags = flags.into_iter().map(|(key, value)| Flag::of(key, value)).collect();
    load(&Environment::new(&entries), flags).map_err(|e| e.to_string().replace(path, "c.toml"))
}

#[test]
fn a_later_layer_wins_and_defaults_are_the_readme_s() {
    let defaults = config("", &[], vec![]).unwrap();
    assert_eq!(defaults.profile, ProfileOption::Auto);
    assert_eq!(defaults.memlock, Demand::Warn);
    assert_eq!(defaults.prepare_timeout, Duration::from_secs(10));
    assert_eq!((defaults.refuse_exit_code, defaults.require_rdma), (121, false));
    assert_eq!(defaults.default_route_hca, DefaultRouteOption::Auto);

    let file = "default-route-hca = \"use\"\nprofile = \"erdma\"\nmemlock = \"off\"\nprepare-timeout = \"2m\"\nkeep = [\"A\"]\n[set]\nX = \"1\"\nY = 2\n";
    let variables =
        [("RDMA_INIT_MEMLOCK", "enforce"), ("RDMA_INIT_KEEP", "B, C"), ("RDMA_INIT_REQUIRE_RDMA", "1")];
    let flags = vec![("profile", "none".into()), ("prepare-timeout", "500ms".into())];
    let merged = config(file, &variables, flags).unwrap();
    assert_eq!(merged.profile, ProfileOption::None);
    assert_eq!(merged.default_route_hca, DefaultRouteOption::Use);
    assert_eq!(merged.memlock, Demand::Enforce);
    assert_eq!(merged.prepare_timeout, Duration::from_millis(500));
    assert_eq!(merged.keep, BTreeSet::from(["B".to_owned(), "C".to_owned()]));
    assert!(merged.require_rdma);
    let set: Vec<_> = merged.set.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(set, ["X=1", "Y=2"]);
}

/// Otherwise each start would wake PID 1, on the CPU of the preparation.
#[test]
fn without_a_key_the_orders_are_those_that_an_init_has_from_the_beginning() {
    assert_eq!(config("", &[], vec![]).unwrap().orders(), Orders::default());
    assert_ne!(config("watch = \"off\"", &[], vec![]).unwrap().orders(), Orders::default());
}

#[test]
fn errors_name_key_value_and_source() {
    let error = |file, variables: &[(&str, &str)], flags| config(file, variables, flags).unwrap_err();
    assert_eq!(
        error("memlok = \"off\"", &[], vec![]),
        "unknown key memlok in the file c.toml; did you mean memlock?"
    );
    assert_eq!(
        error("colour = \"red\"", &[], vec![]),
        format!("unknown key colour in the file c.toml; the keys are {}", names().join(", "))
    );
    assert_eq!(
        error("", &[("RDMA_INIT_MEMLOCK", "on")], vec![]),
        "the key memlock has the value \"on\" in the variable RDMA_INIT_MEMLOCK: expected one of off, warn, enforce"
    );
    assert_eq!(
        error("", &[("RDMA_INIT_DEFAULT_ROUTE_HCA", "avoid")], vec![]),
        "the key default-route-hca has the value \"avoid\" in the variable RDMA_INIT_DEFAULT_ROUTE_HCA: expected one of auto, use, skip"
    );
    assert_eq!(
        error("libraries = [\"gloo\", \"glo\"]", &[], vec![]),
        format!(
            "the key libraries has the value [\"gloo\", \"glo\"] in the file c.toml: there is no library \"glo\"; expected auto, or one or more of nccl, {}",
            libraries::ALL.iter().map(|library| library.name).collect::<Vec<_>>().join(", ")
        )
    );
    assert_eq!(
        error("require-rdma = 7", &[], vec![]),
        "the key require-rdma has the value 7 in the file c.toml: expected true or false"
    );
    assert_eq!(
        error("", &[], vec![("prepare-timeout", "10".into())]),
        "the key prepare-timeout has the value \"10\" in the flag --prepare-timeout: expected a duration above 0, such as 500ms, 25s or 2m"
    );
    assert_eq!(
        error("refuse-exit-code = 256", &[], vec![]),
        "the key refuse-exit-code has the value 256 in the file c.toml: expected a number from 1 to 255"
    );
    for reserved in ["1", "121", "125", "126", "127", "128", "143", "0", "256", "x"] {
        assert_eq!(
            error("", &[("RDMA_INIT_FABRIC_EXIT_CODE", reserved)], vec![]),
            format!(
                "the key fabric-exit-code has the value {reserved:?} in the variable RDMA_INIT_FABRIC_EXIT_CODE: expected a number from 2 to 124 except 121: rdma-init, the shell and signals use the other exit codes"
            )
        );
    }
    assert_eq!(
        error("fabric-exit-code = 42\nrefuse-exit-code = 42", &[], vec![]),
        "the key fabric-exit-code has the value 42 in the file c.toml, as refuse-exit-code has: choose two different codes"
    );
    assert_eq!(
        error("", &[("RDMA_INIT_SET", "NCCL_DEBUG")], vec![]),
        "the key set in the variable RDMA_INIT_SET: line 1: expected VARIABLE=VALUE, with a name of letters, digits and _"
    );
    assert_eq!(
        error("rewrite-signal = [\"TERM:INT\", \"KILL:TERM\"]", &[], vec![]),
        "the key rewrite-signal has the value [\"TERM:INT\", \"KILL:TERM\"] in the file c.toml: \"KILL:TERM\": SIGKILL is never forwarded, so it cannot become another"
    );
    assert_eq!(
        error("", &[("RDMA_INIT_STOP_TIMEOUT", "0s")], vec![]),
        "the key stop-timeout has the value \"0s\" in the variable RDMA_INIT_STOP_TIMEOUT: expected a duration above 0, such as 500ms, 25s or 2m"
    );
    let toml = error("a = 1\nb", &[], vec![]);
    assert!(toml.starts_with("the file c.toml is not valid TOML: line 2:"), "{toml}");
}

#[test]
fn libraries_are_named_and_nccl_is_always_among_them() {
    let libraries = |text: &str| config("", &[("RDMA_INIT_LIBRARIES", text)], vec![]).unwrap().libraries;
    let named = |names: &[&str]| Wanted::Named(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(libraries(""), Wanted::Found);
    assert_eq!(libraries("auto"), Wanted::Found);
    assert_eq!(libraries("nccl"), named(&[]));
    assert_eq!(libraries("nccl, gloo"), named(&["gloo"]));
    let flag = vec![("libraries", Value::from(vec!["gloo".to_owned(), "tensorpipe".to_owned()]))];
    assert_eq!(config("libraries = \"nccl\"", &[], flag).unwrap().libraries, named(&["gloo", "tensorpipe"]));
}

#[test]
fn supervision_is_told_by_file_variable_and_flag_alike() {
    let wanted = Supervision {
        kill_group: true,
        stop_timeout: Some(Duration::from_secs(25)),
        drain_timeout: Some(Duration::from_millis(500)),
        rewrite: Rewrite::new(&["TERM:INT", "HUP:0"]).unwrap(),
        remap: Remap::new(&["143", "3:9"]).unwrap(),
        parent_death_signal: Some(9),
        warn_on_reap: true,
        watch: true,
        fabric_exit_code: Some(42),
    };
    let file = "kill-group = true\nfabric-exit-code = 42\nwatch = \"warn\"\nstop-timeout = \"25s\"\ndrain-timeout = \"500ms\"\nwarn-on-reap = true\n\
                rewrite-signal = [\"TERM:INT\", \"HUP:0\"]\nremap-exit = [143, \"3:9\"]\nparent-death-signal = 9\n";
    assert_eq!(config(file, &[], vec![]).unwrap().supervision(), wanted);
    let variables = [
        ("RDMA_INIT_KILL_GROUP", "1"),
        ("RDMA_INIT_FABRIC_EXIT_CODE", "42"),
        ("RDMA_INIT_WATCH", "warn"),
        ("RDMA_INIT_STOP_TIMEOUT", "25s"),
        ("RDMA_INIT_DRAIN_TIMEOUT", "500ms"),
        ("RDMA_INIT_WARN_ON_REAP", "true"),
        ("RDMA_INIT_REWRITE_SIGNAL", "15:2, HUP:0"),
        ("RDMA_INIT_REMAP_EXIT", "143,3:9"),
        ("RDMA_INIT_PARENT_DEATH_SIGNAL", "SIGKILL"),
    ];
    assert_eq!(config("", &variables, vec![]).unwrap().supervision(), wanted);
    assert_eq!(
        early(&Environment::from(variables), &[]).supervision(),
        wanted,
        "also before the file is read"
    );
    let list = |items: [&str; 2]| Value::from(items.map(str::to_owned).to_vec());
    let flags = vec![
        ("kill-group", true.into()),
        ("fabric-exit-code", "42".into()),
        ("watch", "warn".into()),
        ("stop-timeout", "25s".into()),
        ("drain-timeout", "500ms".into()),
        ("warn-on-reap", true.into()),
        ("rewrite-signal", list(["TERM:INT", "HUP:0"])),
        ("remap-exit", list(["143", "3:9"])),
        ("parent-death-signal", "KILL".into()),
    ];
    assert_eq!(config("", &[], flags).unwrap().supervision(), wanted);
}

#[test]
fn a_missing_file_counts_only_when_it_was_asked_for() {
    let missing = Environment::from([("RDMA_INIT_CONFIG", "/no/such/file")]);
    let error = load(&missing, vec![]).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot read the file /no/such/file (RDMA_INIT_CONFIG): No such file or directory (os error 2)"
    );
}

/// The kubelet creates these variables for a Service with a named port.
#[test]
fn variables_of_a_kubernetes_service_are_not_ours_whatever_its_name() {
    for service in ["", "_TEST", "_PROFILE", "_PORT", "_80", "_SERVICE_PORT"] {
        let name = |end: &str| format!("RDMA_INIT{service}_{end}");
        let variables = [
            (name("SERVICE_HOST"), "10.0.0.1"),
            (name("SERVICE_PORT"), "80"),
            (name("SERVICE_PORT_HTTP"), "80"),
            (name("SERVICE_PORT_HTTP_METRICS"), "9090"),
            (name("PORT"), "tcp://10.0.0.1:80"),
            (name("PORT_80_TCP"), "tcp://10.0.0.1:80"),
            (name("PORT_80_TCP_PROTO"), "tcp"),
            (name("PORT_80_TCP_PORT"), "80"),
            (name("PORT_80_TCP_ADDR"), "10.0.0.1"),
            (name("PORT_53_UDP"), "udp://10.0.0.1:53"),
            (name("PORT_9_SCTP_ADDR"), "fd00::1"),
            // An rdma-init key next to them still counts.
            ("RDMA_INIT_PROFILE".to_owned(), "erdma"),
        ];
        let variables = variables.each_ref().map(|(name, value)| (name.as_str(), *value));
        let read = config("", &variables, vec![]).unwrap();
        assert_eq!(read.profile, ProfileOption::Named("erdma".to_owned()), "{service}");
    }
    for (name, value) in [
        ("RDMA_INIT_PORT", "80"),
        ("RDMA_INIT_PEER_PORT", "18516"),
        ("RDMA_INIT_PORT_80", "tcp"),
        ("RDMA_INIT_PORT_80_TCP_X", "x"),
        ("RDMA_INIT_TEST_PORT_HTTP_TCP", "x"),
        ("RDMA_INIT_TESTSERVICE_HOST", "x"),
    ] {
        let warnings = unknown_variables(&Environment::from([(name, value)]));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(name), "{warnings:?}");
    }
}

#[test]
fn an_unknown_variable_is_a_warning_that_names_the_nearest() {
    let warned = |name: &str| unknown_variables(&Environment::from([(name, "hunter2")])).join("|");
    for (name, warning) in [
        ("RDMA_INIT_VERSION", "the variable RDMA_INIT_VERSION is not known and is ignored."),
        (
            "RDMA_INIT_PROFIL",
            "the variable RDMA_INIT_PROFIL is not known and is ignored; did you mean RDMA_INIT_PROFILE?",
        ),
        (
            "RDMA_INIT_TOKN",
            "the variable RDMA_INIT_TOKN is not known and is ignored; did you mean RDMA_INIT_TOKEN?",
        ),
        ("RDMA_INIT_X", "the variable RDMA_INIT_X is not known and is ignored."),
        ("RDMA_INIT_KEEP", ""),
        ("RDMA_INIT_CONFIG", ""),
    ] {
        assert_eq!(warned(name), warning);
        // The variable is ignored, but the rest of the configuration applies.
        if !warning.is_empty() {
            let read = config("memlock = \"off\"", &[(name, "hunter2")], vec![]).unwrap();
            assert_eq!(read.memlock, Demand::Off);
        }
    }
    let names: Vec<String> = (0..20).map(|number| format!("RDMA_INIT_OTHER_{number}")).collect();
    let entries: Vec<_> =
        names.iter().map(|name| std::ffi::CString::new(format!("{name}=1")).unwrap()).collect();
    let warnings = unknown_variables(&Environment::new(&entries));
    assert_eq!(warnings.len(), 9);
    assert_eq!(warnings[8], "12 other variables of rdma-init (RDMA_INIT_...) are not known and are ignored.");
}

#[test]
fn an_empty_variable_says_nothing() {
    let of = |variables: &[(&str, &str)]| config("memlock = \"off\"\nkeep = [\"A\"]", variables, vec![]);
    let defaults = of(&[]).unwrap();
    for key in KEYS.iter().filter(|key| !key.empty_counts) {
        let name = format!("RDMA_INIT_{}", key.name.to_uppercase().replace('-', "_"));
        assert_eq!(of(&[(&name, "")]).as_ref(), Ok(&defaults), "{name}");
        let environment = Environment::from([(name.as_str(), "")]);
        assert_eq!(early(&environment, &[]), early(&Environment::default(), &[]), "{name}");
    }
    // An empty directory means that no state is saved.
    assert_eq!(of(&[("RDMA_INIT_STATE_DIR", "")]).unwrap().state_dir, StateDir::Nowhere);
    // A comma alone empties a list.
    assert!(of(&[("RDMA_INIT_KEEP", ",")]).unwrap().keep.is_empty());
}
