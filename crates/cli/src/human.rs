//! Sizes for people: `1.5K` and `12M`, as `ls -h`, `du -h` and `df -h` show them.

/// Letters of the powers of 1024.
const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// Returns a number of bytes with at most three digits and the letter of its power of 1024, rounded up. A value below ten
/// has one decimal.
pub(crate) fn size(bytes: u64) -> String {
    let (mut unit, mut length) = (0, 1_u128);
    let bytes = u128::from(bytes);
    // A value that rounds up to 1024 has the next unit.
    while unit + 1 < LETTERS.len() && bytes > 1023 * length {
        length <<= 10;
        unit += 1;
    }
    let letter = LETTERS.get(unit).copied().unwrap_or_default();
    let tenths = (bytes * 10).div_ceil(length);
    if unit > 0 && tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", bytes.div_ceil(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of `ls -h` of the GNU coreutils.
    #[test]
    fn sizes_for_people() {
        for (bytes, text) in [
            (0, "0"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (1536, "1.5K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10_240, "10K"),
            (10_241, "11K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (1 << 20, "1.0M"),
            (5 << 30, "5.0G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }
}
