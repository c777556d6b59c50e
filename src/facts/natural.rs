//! The order in which people count: `mlx5_2` before `mlx5_10`.

use std::cmp::Ordering;

/// Sorts in natural order.
pub(crate) fn sort(names: &mut [String]) {
    names.sort_by(|a, b| natural(a, b));
}

/// Compares names, with runs of digits as numbers.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (None, None) => return Ordering::Equal,
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (number_a, rest_a) = digits(a);
                let (number_b, rest_b) = digits(b);
                // Leading zeros are removed, so the longer number is the larger one.
                let order = number_a.len().cmp(&number_b.len()).then(number_a.cmp(number_b));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (rest_a, rest_b);
            }
            (Some(x), Some(y)) if x == y => (a, b) = (&a[1..], &b[1..]),
            (Some(x), Some(y)) => return x.cmp(y),
        }
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|c| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let zeros = number.iter().take_while(|c| **c == b'0').count();
    (&number[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_people_count() {
        let mut names = vec!["mlx5_10", "mlx5_2", "mlx5_bond_0", "mlx5_1", "erdma_0"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["erdma_0", "mlx5_1", "mlx5_2", "mlx5_10", "mlx5_bond_0"]);
        assert_eq!(natural("a01", "a1"), Ordering::Equal);
    }
}
