//! Reads the program's own prediction: `rdma-init plan --json`.

use serde_json::Value;

use super::model::{Decision, Nics};

/// The program's plan as JSON.
pub struct Told(Value);

impl Told {
    pub fn parse(json: &[u8]) -> Told {
        let problem = || String::from_utf8_lossy(json).into_owned();
        Told(serde_json::from_slice(json).unwrap_or_else(|why| panic!("{why}: {}", problem())))
    }

    /// Returns the version of NCCL in the image.
    pub fn nccl(&self) -> Option<&str> {
        self.0["nccl"].as_str()
    }

    pub fn value(&self, variable: &str) -> Option<&str> {
        let settings = self.0["settings"].as_array().into_iter().flatten();
        settings.into_iter().find(|setting| setting["variable"] == variable)?["value"].as_str()
    }

    pub fn has_finding(&self, id: &str) -> bool {
        self.0["findings"].as_array().into_iter().flatten().any(|finding| finding["id"] == id)
    }

    /// Returns the forecast of the plan. There is only one, because the version is known.
    pub fn forecast(&self) -> Decision {
        let forecasts = self.0["forecasts"].as_array().unwrap();
        let [forecast] = forecasts.as_slice() else { panic!("not one forecast: {forecasts:?}") };
        let ports = forecast["transport"]["verbs"].as_array().into_iter().flatten();
        let ports = ports.map(port).collect();
        Decision { bootstrap: bootstrap(&forecast["bootstrap"]), ports, nics: Nics::Unknown }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn bootstrap(forecast: &Value) -> String {
    let on = &forecast["on"];
    match on.is_object() {
        true => format!("{} {}", text(&on["interface"]), text(&on["address"])),
        false => text(&forecast["fails"]).to_owned(),
    }
}

/// Returns the port and its GID index in the form of [`Decision`], for example `mlx5_1:1/RoCE` and `3`.
fn port(port: &Value) -> (String, String) {
    let name = format!("{}:{}", text(&port["hca"]), port["port"]);
    if port["link_layer"] != "Ethernet" {
        return (format!("{name}/IB"), "any".to_owned());
    }
    let slot = match &port["gid"]["slot"]["index"] {
        Value::Number(index) => index.to_string(),
        _ if text(&port["gid"]["fails"]).contains("crashes") => "crashes".to_owned(),
        _ => "fails".to_owned(),
    };
    (format!("{name}/RoCE"), slot)
}
