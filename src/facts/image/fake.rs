//! Makes the bytes of libraries for the tests.

use super::architecture::OURS;

/// The content of a library of this program's architecture.
#[derive(Default)]
pub struct Library<'a> {
    pub needed: &'a [&'a str],
    pub rpath: Option<&'a str>,
    pub runpath: Option<&'a str>,
    pub texts: &'a [u8],
    pub without_sections: bool,
}

/// The address at which the file is loaded; it differs from the offset, as in real libraries.
const BASE: u64 = 0x40_0000;

impl Library<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let headers = 64 + 2 * 56;
        let mut strings = vec![0];
        let mut dynamic = Vec::new();
        let mut add = |tag: u64, text: &str| {
            dynamic.extend([tag, strings.len() as u64]);
            strings.extend(text.bytes().chain([0]));
        };
        self.needed.iter().for_each(|name| add(1, name));
        self.rpath.iter().for_each(|path| add(15, path));
        self.runpath.iter().for_each(|path| add(29, path));
        let texts = headers + strings.len() as u64;
        let dynamic_at = texts + self.texts.len() as u64;
        dynamic.extend([5, BASE + headers, 0, 0]);
        let names = b"\0.rodata\0.shstrtab\0";
        let names_at = dynamic_at + dynamic.len() as u64 * 8;
        let sections_at = names_at + names.len() as u64;

        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        put(&mut bytes, &[(2, 3), (2, OURS.machine.into()), (4, 1), (8, 0), (8, 64)]);
        put(&mut bytes, &[(8, if self.without_sections { 0 } else { sections_at })]);
        put(&mut bytes, &[(4, 0), (2, 64), (2, 56), (2, 2), (2, 64)]);
        put(&mut bytes, &if self.without_sections { [(2, 0), (2, 0)] } else { [(2, 3), (2, 2)] });
        let length = dynamic.len() as u64 * 8;
        for (kind, at, length) in [(1, 0, names_at), (2, dynamic_at, length)] {
            put(&mut bytes, &[(4, kind), (4, 4), (8, at), (8, BASE + at), (8, 0), (8, length), (8, length)]);
            put(&mut bytes, &[(8, 8)]);
        }
        bytes.extend(strings);
        bytes.extend(self.texts);
        bytes.extend(dynamic.iter().flat_map(|word| word.to_le_bytes()));
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

/// Appends numbers of this many bytes.
fn put(bytes: &mut Vec<u8>, numbers: &[(usize, u64)]) {
    for (size, number) in numbers {
        bytes.extend(&number.to_le_bytes()[..*size]);
    }
}

/// Turns a library of this program's architecture into one of the other.
pub fn turn(bytes: &mut [u8]) {
    bytes[18] ^= 62 ^ 183;
}

/// An NCCL that tells its version.
pub fn nccl(version: &str) -> Vec<u8> {
    let texts = format!("NCCL version %s\0\0NCCL version {version}+cuda12.4\0");
    Library { texts: texts.as_bytes(), ..Library::default() }.bytes()
}

/// A library without anything in it.
pub fn empty() -> Vec<u8> {
    Library::default().bytes()
}
