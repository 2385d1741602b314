// Reads records of a byte and a word, packed behind each other.

fn word_at(bytes: &[u8], at: usize) -> u32 {
    assert!(at + 4 <= bytes.len());
    unsafe { *(bytes.as_ptr().add(at) as *const u32) } // FAULT misaligned load: at is odd
}

fn sum(bytes: &[u8]) -> u32 {
    (0..bytes.len() / 5).map(|row| word_at(bytes, row * 5 + 1)).fold(0, u32::wrapping_add)
}

fn main() {
    let bytes = std::env::args().map(|_| [1u8; 40]).collect::<Vec<_>>().concat();
    println!("{}", sum(&bytes));
}
