//! The machine's identity according to its firmware: `/sys/class/dmi/id`.

use serde::{Deserialize, Serialize};

use super::reader::Reader;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dmi {
    /// Such as `Amazon EC2`, `Alibaba Cloud`, `Google`, or `Microsoft Corporation`.
    pub vendor: Option<String>,
    /// The model of the machine; on AWS the instance type.
    pub product: Option<String>,
    /// The label of the chassis, which some clouds use to mark their machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asset_tag: Option<String>,
}

pub(crate) fn read(reader: &Reader) -> Dmi {
    Dmi {
        vendor: reader.text("/sys/class/dmi/id/sys_vendor"),
        product: reader.text("/sys/class/dmi/id/product_name"),
        asset_tag: reader
            .text_if_readable("/sys/class/dmi/id/chassis_asset_tag")
            .filter(|tag| !tag.is_empty()),
    }
}
