//! How the tables of a profile are read: a list is never taken for a table, and an error says what to write.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};

/// What an array of tables is, in the error for a single table. `explain` replaces it by what to write.
pub(crate) const DOUBLE_BRACKETS: &str = "any number of tables, with the name of each in double brackets";

/// What is read from a table. What serde derives for a struct would also take a list, and use its items in order.
pub(crate) trait Table: DeserializeOwned {
    /// What to write.
    const FORM: &'static str = "a table";
}

pub(crate) fn table<'de, D: Deserializer<'de>, T: Table>(from: D) -> Result<T, D::Error> {
    struct Form<T>(PhantomData<T>);
    impl<'de, T: Table> Visitor<'de> for Form<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(T::FORM)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Form(PhantomData))
}

pub(crate) fn some_table<'de, D: Deserializer<'de>, T: Table>(from: D) -> Result<Option<T>, D::Error> {
    table(from).map(Some)
}

/// Reads an array of tables.
pub(crate) fn tables<'de, D: Deserializer<'de>, T: Table>(from: D) -> Result<Vec<T>, D::Error> {
    list(from, DOUBLE_BRACKETS)
}

/// Reads the list of a condition's `not`.
pub(crate) fn unwanted<'de, D: Deserializer<'de>, T: Table + Clone>(
    from: D,
) -> Result<Cow<'static, [T]>, D::Error> {
    list(from, "a list of tables, such as [{ environment = \"OUR_LAB\" }]").map(Cow::Owned)
}

fn list<'de, D: Deserializer<'de>, T: Table>(from: D, form: &'static str) -> Result<Vec<T>, D::Error> {
    struct Item<T>(T);
    impl<'de, T: Table> Deserialize<'de> for Item<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Item<T>, D::Error> {
            table(from).map(Item)
        }
    }
    struct Items<T>(&'static str, PhantomData<T>);
    impl<'de, T: Table> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut tables = Vec::new();
            while let Some(Item(table)) = from.next_element()? {
                tables.push(table);
            }
            Ok(tables)
        }
    }
    from.deserialize_seq(Items(form, PhantomData))
}
