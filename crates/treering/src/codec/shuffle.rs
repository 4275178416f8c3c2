//! Putting bytes, bits or parts of records together that have the same place in their values.
//!
//! All keep the length. The remainder behind the last whole value (or group of eight, for bits)
//! stays where it is, at the end.

/// Byte k of every value, for each k: one plane after another.
pub(super) fn bytes(raw: &[u8], out: &mut [u8], size: usize) {
    let (count, whole) = whole(raw, size);
    out[whole..].copy_from_slice(&raw[whole..]);
    match size {
        2 => planes::<2>(&raw[..whole], &mut out[..whole], count),
        4 => planes::<4>(&raw[..whole], &mut out[..whole], count),
        8 => planes::<8>(&raw[..whole], &mut out[..whole], count),
        _ => records(&raw[..whole], &mut out[..whole], 1, size),
    }
}

pub(super) fn unbytes(shuffled: &[u8], out: &mut [u8], size: usize) {
    let (count, whole) = whole(shuffled, size);
    out[whole..].copy_from_slice(&shuffled[whole..]);
    match size {
        2 => unplanes::<2>(&shuffled[..whole], &mut out[..whole], count),
        4 => unplanes::<4>(&shuffled[..whole], &mut out[..whole], count),
        8 => unplanes::<8>(&shuffled[..whole], &mut out[..whole], count),
        _ => unrecords(&shuffled[..whole], &mut out[..whole], 1, size),
    }
}

fn whole(raw: &[u8], size: usize) -> (usize, usize) {
    let count = raw.len() / size;
    (count, count * size)
}

/// Number of values that are taken at a time: their planes are then written in lines of this many bytes.
const GROUP: usize = 32;

fn planes<const SIZE: usize>(raw: &[u8], out: &mut [u8], count: usize) {
    let values = raw.as_chunks::<SIZE>().0;
    for (number, group) in values.chunks(GROUP).enumerate() {
        let at = number * GROUP;
        for plane in 0..SIZE {
            let line = &mut out[plane * count + at..][..group.len()];
            line.iter_mut().zip(group).for_each(|(byte, value)| *byte = value[plane]);
        }
    }
}

fn unplanes<const SIZE: usize>(shuffled: &[u8], out: &mut [u8], count: usize) {
    let values = out.as_chunks_mut::<SIZE>().0;
    for (number, group) in values.chunks_mut(GROUP).enumerate() {
        let at = number * GROUP;
        for plane in 0..SIZE {
            let line = &shuffled[plane * count + at..][..group.len()];
            group.iter_mut().zip(line).for_each(|(value, byte)| value[plane] = *byte);
        }
    }
}

/// Part k of every record of `count` parts of `element` bytes, for each k.
pub(super) fn split(raw: &[u8], out: &mut [u8], element: usize, count: usize) {
    let whole = raw.len() / (element * count) * (element * count);
    out[whole..].copy_from_slice(&raw[whole..]);
    records(&raw[..whole], &mut out[..whole], element, count);
}

pub(super) fn unsplit(parts: &[u8], out: &mut [u8], element: usize, count: usize) {
    let whole = parts.len() / (element * count) * (element * count);
    out[whole..].copy_from_slice(&parts[whole..]);
    unrecords(&parts[..whole], &mut out[..whole], element, count);
}

fn records(raw: &[u8], out: &mut [u8], element: usize, count: usize) {
    let of_part = raw.len() / count;
    for (at, record) in raw.chunks_exact(element * count).enumerate() {
        for (part, bytes) in record.chunks_exact(element).enumerate() {
            out[part * of_part + at * element..][..element].copy_from_slice(bytes);
        }
    }
}

fn unrecords(parts: &[u8], out: &mut [u8], element: usize, count: usize) {
    let of_part = parts.len() / count;
    for (at, record) in out.chunks_exact_mut(element * count).enumerate() {
        for (part, bytes) in record.chunks_exact_mut(element).enumerate() {
            bytes.copy_from_slice(&parts[part * of_part + at * element..][..element]);
        }
    }
}

/// Bit k of every value, for each k.
pub(super) fn bits(raw: &[u8], out: &mut [u8], size: usize) {
    let whole = raw.len() / (8 * size) * (8 * size);
    out[whole..].copy_from_slice(&raw[whole..]);
    let mut planes = vec![0; whole];
    bytes(&raw[..whole], &mut planes, size);
    let of_plane = whole / size;
    for (plane, out) in
        planes.chunks_exact(of_plane.max(1)).zip(out.chunks_exact_mut(of_plane.max(1)))
    {
        let row = of_plane / 8;
        for (at, eight) in plane.as_chunks::<8>().0.iter().enumerate() {
            let turned = transposed(u64::from_le_bytes(*eight)).to_le_bytes();
            turned.iter().enumerate().for_each(|(bit, byte)| out[bit * row + at] = *byte);
        }
    }
}

pub(super) fn unbits(shuffled: &[u8], out: &mut [u8], size: usize) {
    let whole = shuffled.len() / (8 * size) * (8 * size);
    out[whole..].copy_from_slice(&shuffled[whole..]);
    let mut planes = vec![0; whole];
    let of_plane = whole / size;
    let sources = shuffled[..whole].chunks_exact(of_plane.max(1));
    for (plane, source) in planes.chunks_exact_mut(of_plane.max(1)).zip(sources) {
        let row = of_plane / 8;
        for (at, eight) in plane.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let turned = std::array::from_fn(|bit| source[bit * row + at]);
            *eight = transposed(u64::from_le_bytes(turned)).to_le_bytes();
        }
    }
    unbytes(&planes, &mut out[..whole], size);
}

/// Bit j of byte i becomes bit i of byte j.
fn transposed(mut x: u64) -> u64 {
    let mut swap = |mask: u64, by: u32| {
        let t = (x ^ (x >> by)) & mask;
        x = x ^ t ^ (t << by);
    };
    swap(0x00aa_00aa_00aa_00aa, 7);
    swap(0x0000_cccc_0000_cccc, 14);
    swap(0x0000_0000_f0f0_f0f0, 28);
    x
}
