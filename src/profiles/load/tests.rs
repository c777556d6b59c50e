use super::*;
use crate::profiles::folder::{FILES, LONGEST};
use std::fs;

fn load(files: &[(&str, &str)]) -> Result<Profiles, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let prefix = format!("{}/", folder.path().display());
    Profiles::load(Some(folder.path())).map_err(|error| error.to_string().replace(&prefix, ""))
}

const HEAD: &str = "name = \"site\"\ntitle = \"t\"\nsource = \"s\"\n";

#[test]
fn embedded_profiles_are_sound() {
    assert!(complete(embedded()).is_ok());
    let profiles = Profiles::load(None).unwrap();
    assert_eq!(profiles.iter().count(), EMBEDDED.len());
    for profile in profiles.iter() {
        assert_eq!(check(profile), Ok(()), "{}", profile.name);
        let shown = toml::to_string(profile).unwrap();
        assert_eq!(toml::from_str::<Profile>(&shown).unwrap(), *profile);
    }
}

#[test]
fn a_profile_that_is_asked_for_first_is_what_it_is_among_all() {
    let all = Profiles::load(None).unwrap();
    for profile in all.iter() {
        assert_eq!(Profiles::load(None).unwrap().get(&profile.name), Some(profile), "{}", profile.name);
    }
    let some = Profiles::load(None).unwrap();
    for name in ["no such profile", "pai-erdma", "erdma"] {
        assert_eq!(some.get(name), all.get(name), "{name}");
    }
}

#[test]
fn an_extension_keeps_the_order_of_its_base_and_adds_its_own() {
    let profiles = Profiles::load(None).unwrap();
    let (erdma, pai) = (profiles.get("erdma").unwrap(), profiles.get("pai-erdma").unwrap());
    let names: Vec<_> = pai.variables.keys().cloned().collect();
    let mut wanted: Vec<_> = erdma.variables.keys().cloned().collect();
    wanted.extend(["PYTHONUNBUFFERED".to_owned(), "TZ".to_owned()]);
    assert_eq!(names, wanted);
    assert_eq!(pai.constraints.nics, erdma.constraints.nics);
    assert!(!pai.constraints.gpus.is_empty() && erdma.constraints.gpus.is_empty());
}

#[test]
fn what_profiles_ask_for_is_known_before_one_is_chosen() {
    let text = format!(
        "{HEAD}[from-environment]\nNCCL_IB_TC = \"SITE_TC\"\n\
         [[only]]\nif = {{ file = \"/etc/b\" }}\nvariables = {{ NCCL_ALGO = \"Ring\" }}\n\
         [[auto]]\nenvironment = \"SITE_*\"\nnot = [{{ file = \"/etc/a\", environment = \"LAB\" }}]\n"
    );
    let profiles = load(&[("site.toml", &text)]).unwrap();
    let files = profiles.files();
    assert!(files.contains(&"/etc/a") && files.contains(&"/etc/b"), "{files:?}");
    assert!(profiles.is_marker("SITE_NAME") && profiles.is_marker("LAB") && !profiles.is_marker("HOME"));
    assert!(profiles.may_fill("NCCL_ALGO") && profiles.may_fill("NCCL_IB_TC"));
    assert!(profiles.reads("SITE_TC") && !profiles.may_fill("SITE_TC"));
}

#[test]
fn a_user_profile_replaces_an_embedded_one() {
    let text = "name = \"erdma\"\ntitle = \"t\"\nsource = \"s\"\n[variables]\nNCCL_DEBUG = \"WARN\"\n";
    let profiles = load(&[("erdma.toml", text), ("notes.txt", "not a profile")]).unwrap();
    assert_eq!(profiles.get("erdma").unwrap().variables.len(), 1);
    // A profile that extends it now extends the user's version.
    assert_eq!(profiles.get("pai-erdma").unwrap().variables.len(), 3);
}

#[test]
fn a_folder_has_no_more_than_profiles_need() {
    let text = |name: &str, extends: &str| format!("{HEAD}extends = \"{extends}\"\n").replace("site", name);
    let names: Vec<String> = (0..=DEEPEST + 1).map(|number| format!("p{number}")).collect();
    let chain = |length: usize| {
        let on_top =
            names[..length].windows(2).map(|pair| (format!("{}.toml", pair[0]), text(&pair[0], &pair[1])));
        let files: Vec<_> =
            on_top.chain([("z.toml".to_owned(), text(&names[length - 1], "erdma"))]).collect();
        load(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>()).map(drop)
    };
    assert_eq!(chain(DEEPEST), Ok(()));
    let why = chain(DEEPEST + 1).unwrap_err();
    assert!(why.starts_with("p0.toml:4: key \"extends\": the profile extends more than 16 others"), "{why}");

    let many: Vec<(String, String)> = (0..=FILES)
        .map(|number| (format!("{number}.toml"), HEAD.replace("site", &format!("p{number}"))))
        .collect();
    let many: Vec<_> = many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(load(&many[1..]).is_ok());
    let long = format!("{HEAD}#{}", "#".repeat(usize::try_from(LONGEST).unwrap() - HEAD.len() - 1));
    let long: Vec<_> = many[..5].iter().map(|(name, _)| (*name, long.as_str())).collect();
    for files in [&many, &long] {
        let why = load(files).unwrap_err();
        assert!(why.contains("more than 256 profiles, or more than 1048576 bytes"), "{why}");
    }
}

#[test]
fn a_broken_profile_is_named_with_line_and_key() {
    let error = |text: &str| load(&[("site.toml", &format!("{HEAD}{text}"))]).unwrap_err();
    let every_host = "a table without a condition other than \"not\" would match every host";
    let interface = "must be the whole name of an interface, without \"*\"";
    for (text, wanted) in [
        ("extends = \"absent\"", "4: key \"extends\": there is no profile \"absent\""),
        ("extends = \"site\"", "4: key \"extends\": the profile extends itself: site -> site"),
        ("[[auto]]\nhca-name = \"a\"\n[[auto]]", &format!("6: key \"auto\": {every_host}")),
        ("[[auto]]\nnot = [{ no-hca = true }]", &format!("4: key \"auto\": {every_host}")),
        (
            "[[only]]\nvariables = { NCCL_DEBUG = \"INFO\" }",
            "4: key \"only\": a table without a condition belongs in \"variables\"",
        ),
        (
            "[[only]]\nnccl-min = \"newest\"\nvariables = { NCCL_DEBUG = \"INFO\" }",
            "5: key \"nccl-min\": \"newest\" must be a release such as \"2.27\"",
        ),
        (
            "[constraints]\ncuda-min = \"12 or so\"",
            "5: key \"cuda-min\": \"12 or so\" must be a release such as \"2.27\"",
        ),
        (
            "[from-environment]\nNCCL_DEBUG = \"a b\"",
            "5: key \"NCCL_DEBUG\": \"NCCL_DEBUG\" = \"a b\" must have two names of variables",
        ),
        (
            "[from-environment]\nNCCL_DEBUG = \"SITE_TOKEN\"",
            "5: key \"NCCL_DEBUG\": \"SITE_TOKEN\" may hold a secret, to judge by its name, and rdma-init does not keep its value: use another variable",
        ),
        (
            "[[auto]]\nfile = \"etc/*\"",
            "5: key \"file\": \"etc/*\" must be the absolute path of a file, without \"*\"",
        ),
        (
            "[constraints]\ninterfaces-up = [\n  \"eth0\",\n  \"hpn*\",\n]",
            &format!("7: key \"interfaces-up\": \"hpn*\" {interface}"),
        ),
        ("fabric = { interface = \"hpn*\" }", &format!("4: key \"interface\": \"hpn*\" {interface}")),
        (
            "[variables]\nNCCL_IB_TC = \"106\"\nNCCL_IB_RETRY_CNT = \"10\"",
            "6: key \"NCCL_IB_RETRY_CNT\": \"10\" is out of range: it can be 0 to 7 (the field has 3 bits)",
        ),
        (
            "[variables]\nNCCL_NET_GDR_LEVEL = \"pix\"",
            "5: key \"NCCL_NET_GDR_LEVEL\": \"pix\" is a value that NCCL does not know: it can be one of LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, or 0 to 4",
        ),
        (
            "[variables]\nNCCL_IB_ADDR_FAMILY = \"IPv6\"",
            "5: key \"NCCL_IB_ADDR_FAMILY\": \"IPv6\" is a value that NCCL does not know: it can be AF_INET or AF_INET6",
        ),
        (
            "[[only]]\nnccl-min = \"2.27\"\n[only.variables]\nNCCL_IB_TIMEOUT = \"022\"",
            "7: key \"NCCL_IB_TIMEOUT\": \"022\" must be a number without a leading 0 and without anything after it: 0 to 31 (the field has 5 bits)",
        ),
        (
            "fabric = { plugin-over-interfaces = [] }",
            "4: key \"plugin-over-interfaces\": the list is empty: it must have the interfaces",
        ),
        (
            "fabric = { plugin-over-interfaces = [\"a b\"] }",
            &format!("4: key \"plugin-over-interfaces\": \"a b\" {interface}"),
        ),
        (
            "script = { paths = [\"/a\"], sets = \"SITE\" }",
            "4: key \"script\": the profile has no hands-off: write there which variables the script sets",
        ),
        (
            "[constraints]\ncards = [0]",
            "5: key \"cards\": no node with GPUs has 0 of them: write the numbers that have RDMA",
        ),
        (
            "[[constraints.gpus]]\nmodel = \"\"\ncount = 8\nnics = 8",
            "5: key \"model\": \"\" must be the model of a GPU, or a pattern of it",
        ),
        (
            "[[constraints.gpus]]\nmodel = \"*\"\ncount = 0\nnics = 8",
            "6: key \"count\": no machine with these GPUs has 0 of them: write how many it has",
        ),
        (
            "[[auto]]\nenvironment = \"A\"\nnot = [{ file = \"/a\" },\n{ environment = \"A\" }]",
            "7: key \"not\": the table above it asks for what this one rules out, so it holds on no host",
        ),
        (
            "[[auto]]\nenvironment = \"A\"\nnot = [{ dmi-other-than = \"Oracle\" }]",
            "6: key \"dmi-other-than\": \"Oracle\" is no name that rdma-init has for a cloud: write \"Oracle Cloud\"",
        ),
        (
            "[[auto]]\nhca-name = \"a\"\nnot = [\n  { link-layer = \"RoCE\" }\n]",
            "7: key \"link-layer\": \"RoCE\" must be \"InfiniBand\" or \"Ethernet\"",
        ),
    ] {
        assert_eq!(error(text), format!("site.toml:{wanted}"), "{text}");
    }
    let twice = load(&[("a.toml", HEAD), ("b.toml", HEAD)]).unwrap_err();
    assert_eq!(
        twice,
        "b.toml:1: key \"name\": a.toml has the name \"site\" as well, and only one of them can count"
    );
    let missing = load(&[("x.toml", "name = \"x\"")]).unwrap_err();
    assert!(missing.starts_with("x.toml:1:") && missing.contains("`title`"), "{missing}");
}

#[test]
fn a_script_may_stand_beside_the_hands_off_of_its_base() {
    let base = format!("{HEAD}hands-off = [\"NCCL_*\"]\n");
    let script = "extends = \"site\"\nscript = { paths = [\"/a\"], sets = \"SITE\" }\n";
    let on_top = HEAD.replace("site", "hall") + script;
    assert_eq!(load(&[("base.toml", &base), ("top.toml", &on_top)]).map(drop), Ok(()));
}

#[test]
fn what_a_profile_of_0_1_0_could_have_without_harm_is_no_error() {
    for text in [
        "companions = [\"SITE_IFNAME\"]",
        "hands-off = [\"NCCL_IB_TC\"]\n[variables]\nNCCL_IB_TC = \"106\"",
        "[constraints]\ncards = [0, 8]",
    ] {
        assert_eq!(load(&[("site.toml", &format!("{HEAD}{text}"))]).map(drop), Ok(()), "{text}");
    }
}

#[test]
fn a_condition_that_holds_on_no_host_is_refused() {
    let error = |text: &str| load(&[("site.toml", &format!("{HEAD}[[auto]]\n{text}"))]).unwrap_err();
    for (text, key) in [
        ("hca-name = \"\"", "hca-name"),
        ("link-layer = \"ethernet\"", "link-layer"),
        ("gpu-vendor = \"NVIDIA\"", "gpu-vendor"),
        ("hca = { driver = \"mlx5*\", name = \"mlx5*\", pci = \"zz\" }", "pci"),
        ("hca = { driver = \"mlx5*\", name = \"mlx5*\", pci = \"15B3:101E\" }", "pci"),
        ("hca = { driver = \"mlx5*\", name = \"mlx5*\", pci = \"15b3\" }", "pci"),
        ("hca = { driver = \"\", name = \"\" }", "hca"),
        ("interface = \"eth0 \"", "interface"),
        ("interface-up = \"a-name-of-sixteen\"", "interface-up"),
        ("environment = \"SITE=1\"", "environment"),
        ("dmi-product = \"\"", "dmi-product"),
        ("dmi-other-than = \"Crus*\"", "dmi-other-than"),
        ("claimed-attribute = { name = \"rdma\" }", "name"),
        ("claimed-attribute = { name = \"/\" }", "name"),
        ("no-hca = true\nhca-name = \"a\"", "no-hca"),
        ("hca-name = \"a\"\nnot = [{}]", "not"),
    ] {
        let why = error(text);
        assert!(
            why.starts_with("site.toml:") && why.contains(&format!(": key \"{key}\": ")),
            "{text}: {why}"
        );
    }
    for text in [
        "hca = { driver = \"mlx5*\", name = \"mlx5*\", pci = \"15b3:*\" }",
        "hca = { driver = \"mlx5*\", name = \"mlx5*\", pci = \"15b3:10*\" }",
        "hca = { driver = \"mlx5*\", name = \"\" }",
        "gpu-vendor = \"nv*\"",
        "interface = \"*-of-fourteen-\"",
        "environment = \"SITE_*\"",
        "environment = \"A\"\nnot = [{ dmi-other-than = \"CoreWeave\" }]",
        "claimed-attribute = { name = \"dra.net/*\" }",
    ] {
        let loaded = load(&[("site.toml", &format!("{HEAD}[[auto]]\n{text}"))]);
        assert_eq!(loaded.map(drop), Ok(()), "{text}");
    }
}
