//! Builds the bytes of libraries for the tests.

use super::architecture::OURS;

/// The content of a library of this program's architecture.
#[derive(Default)]
pub(super) struct FakeLibrary<'a> {
    pub needed: &'a [&'a str],
    pub rpath: Option<&'a str>,
    pub runpath: Option<&'a str>,
    pub texts: &'a [u8],
    pub without_sections: bool,
    /// What a libibverbs provider states about itself: its name, and the lowest and highest kernel ABI.
    pub states: Option<(&'a str, u32, u32)>,
    /// Whether a packed table relocates the pointers of `states`.
    pub packed: bool,
    /// A symbol version that this library needs from another.
    pub needs_version: Option<(&'a str, &'a str)>,
    /// A symbol version that this library defines.
    pub has_version: Option<&'a str>,
}

/// Returns the file with a few bytes changed, mostly to extreme values. The first bytes stay as they are.
pub(super) fn damaged(good: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..random.usize(1..8) {
        let at = random.usize(20..bytes.len());
        let any = random.u8(..);
        bytes[at] = random.choice([0, 1, 0x7f, 0x80, 0xff, any]).unwrap();
    }
    bytes
}

/// The address at which the file is loaded; it differs from the offset, as in real libraries.
const BASE: u64 = 0x40_0000;

impl FakeLibrary<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let segments = if self.states.is_some() { 3 } else { 2 };
        let headers = 64 + segments * 56;
        let mut strings = vec![0];
        let mut dynamic = Vec::new();
        let mut add = |tag: u64, text: &str| {
            dynamic.extend([tag, strings.len() as u64]);
            strings.extend(text.bytes().chain([0]));
        };
        self.needed.iter().for_each(|name| add(1, name));
        self.rpath.iter().for_each(|path| add(15, path));
        self.runpath.iter().for_each(|path| add(29, path));
        let name_at = BASE + headers + strings.len() as u64;
        strings.extend(self.states.iter().flat_map(|(name, ..)| name.bytes().chain([0])));
        let (needs, has) = self.versions(&mut strings);
        let texts = headers + strings.len() as u64;
        let dynamic_at = (texts + self.texts.len() as u64).next_multiple_of(8);
        dynamic.extend([5, BASE + headers]);
        let versions = u64::from(needs.is_some()) + u64::from(has.is_some());
        let data_at = dynamic_at + (dynamic.len() as u64 + 4 * versions + 6) * 8;
        let (data, table) = self.stated(name_at, BASE + data_at);
        let table_at = BASE + data_at + data.len() as u64;
        let [at, size] = if self.packed { [36, 35] } else { [7, 8] };
        dynamic.extend([at, table_at, size, table.len() as u64]);
        let mut lists = Vec::new();
        for (tag, list) in [(0x6fff_fffe, needs), (0x6fff_fffc, has)] {
            if let Some(list) = list {
                dynamic.extend([tag, table_at + (table.len() + lists.len()) as u64, tag + 1, 1]);
                lists.extend(list);
            }
        }
        dynamic.extend([0, 0]);
        let names = b"\0.rodata\0.shstrtab\0";
        let names_at = data_at + (data.len() + table.len() + lists.len()) as u64;
        let sections_at = names_at + names.len() as u64;

        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        put(&mut bytes, &[(2, 3), (2, OURS.machine.into()), (4, 1), (8, 0), (8, 64)]);
        put(&mut bytes, &[(8, if self.without_sections { 0 } else { sections_at })]);
        put(&mut bytes, &[(4, 0), (2, 64), (2, 56), (2, segments), (2, 64)]);
        put(&mut bytes, &if self.without_sections { [(2, 0), (2, 0)] } else { [(2, 3), (2, 2)] });
        let length = dynamic.len() as u64 * 8;
        let all = [(1, 4, 0, names_at), (2, 4, dynamic_at, length), (1, 6, data_at, data.len() as u64)];
        for (kind, flags, at, length) in &all[..segments as usize] {
            let (kind, flags, at, length) = (*kind, *flags, *at, *length);
            put(
                &mut bytes,
                &[(4, kind), (4, flags), (8, at), (8, BASE + at), (8, 0), (8, length), (8, length)],
            );
            put(&mut bytes, &[(8, 8)]);
        }
        bytes.extend(strings);
        bytes.extend(self.texts);
        bytes.resize(dynamic_at as usize, 0);
        bytes.extend(dynamic.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(data);
        bytes.extend(table);
        bytes.extend(lists);
        bytes.extend(names);
        for (name, at, length) in
            [(0, 0, 0), (1, texts, self.texts.len() as u64), (9, names_at, names.len() as u64)]
        {
            put(
                &mut bytes,
                &[(4, name), (4, 1), (8, 0), (8, 0), (8, at), (8, length), (8, 0), (8, 0), (8, 0)],
            );
        }
        bytes
    }
}

impl FakeLibrary<'_> {
    /// Returns an `Elf64_Verneed` and an `Elf64_Verdef`, each with one version.
    fn versions(&self, strings: &mut Vec<u8>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let mut text = |text: &str| {
            let at = strings.len() as u64;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let needs = self.needs_version.map(|(of, version)| {
            let mut list = Vec::new();
            put(&mut list, &[(2, 1), (2, 1), (4, text(of)), (4, 16), (4, 0)]);
            put(&mut list, &[(4, 0), (2, 0), (2, 2), (4, text(version)), (4, 0)]);
            list
        });
        let has = self.has_version.map(|version| {
            let mut list = Vec::new();
            put(&mut list, &[(2, 1), (2, 0), (2, 1), (2, 1), (4, 0), (4, 20), (4, 0)]);
            put(&mut list, &[(4, text(version)), (4, 0)]);
            list
        });
        (needs, has)
    }

    /// Returns the start of a `struct verbs_device_ops` at this address, and the table that relocates its
    /// pointers: one to the name, one to an arbitrary place.
    fn stated(&self, name_at: u64, data_at: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut data, mut table) = (Vec::new(), Vec::new());
        let Some((_, least, most)) = self.states else { return (data, table) };
        let targets = if self.packed { [name_at, BASE] } else { [0, 0] };
        put(&mut data, &[(8, targets[0]), (4, least.into()), (4, most.into()), (8, targets[1])]);
        match self.packed {
            // This marks the second of the places after the first pointer.
            true => put(&mut table, &[(8, data_at), (8, 0b101)]),
            false => {
                for (at, target) in [(data_at, name_at), (data_at + 16, BASE)] {
                    put(&mut table, &[(8, at), (8, 8), (8, target)]);
                }
            }
        }
        (data, table)
    }
}

/// Appends each number in its number of bytes.
fn put(bytes: &mut Vec<u8>, numbers: &[(usize, u64)]) {
    for (size, number) in numbers {
        bytes.extend(&number.to_le_bytes()[..*size]);
    }
}

/// Turns a library of this program's architecture into one of the other architecture.
pub(super) fn turn(bytes: &mut [u8]) {
    bytes[18] ^= 62 ^ 183;
}

/// Returns an NCCL that contains its version.
pub(super) fn nccl(version: &str) -> Vec<u8> {
    let texts = format!("NCCL version %s\0\0NCCL version {version}+cuda12.4\0");
    FakeLibrary { texts: texts.as_bytes(), ..FakeLibrary::default() }.bytes()
}

/// Returns a library without anything in it.
pub(super) fn empty() -> Vec<u8> {
    FakeLibrary::default().bytes()
}

/// Returns a provider that states which kernel ABIs it supports.
pub(super) fn provider(name: &str, least: u32, most: u32) -> Vec<u8> {
    FakeLibrary { states: Some((name, least, most)), ..FakeLibrary::default() }.bytes()
}
