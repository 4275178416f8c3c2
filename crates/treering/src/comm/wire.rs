//! The wire form of the structs that ranks send to each other: letters.
//!
//! A letter is a tag, the fields in their order, and a checksum. Numbers are varints, lists and texts have their length in
//! front, and enums the number of their variant. The tag is a hash of the type, its fields and the release: ranks that make
//! different calls, or run different releases, do not take one letter for another.
//!
//! Law: [`Wire::from_letter`] returns what [`Wire::to_letter`] was given, and an error for any other bytes (except for a
//! hash collision, odds 2^−64). It never panics, and its memory is bounded by a multiple of the length of the letter.

use super::{garbled, seal, unsealed};
use crate::array::{Description, IndexBox, Labels};
use crate::error::Result;
use crate::format::{Reader, Writer, parse_description, write_description};
use crate::merkle::hash_of_name;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;

/// A value with a wire form. Structs and enums get theirs from the macro [`wire`].
pub(crate) trait Wire: Sized {
    /// Hash of the names of the type and its fields.
    const FORM: u64;

    /// Writes the value.
    fn put(&self, to: &mut Writer);

    /// Reads a value, of at least one byte.
    fn take(from: &mut Reader) -> Result<Self>;

    /// The value as a letter.
    fn to_letter(&self) -> Vec<u8> {
        let mut letter = Writer(tag(Self::FORM).to_vec());
        self.put(&mut letter);
        seal(&mut letter.0);
        letter.0
    }

    /// The value of a letter; an error of kind [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if it is none.
    fn from_letter(letter: &[u8]) -> Result<Self> {
        let body = unsealed(letter).and_then(|body| body.strip_prefix(&tag(Self::FORM)));
        let mut from = Reader::new(body.ok_or_else(garbled)?);
        let value = Self::take(&mut from);
        value.and_then(|value| from.end().map(|()| value)).map_err(|_| garbled())
    }
}

/// The first bytes of letters of a type.
fn tag(form: u64) -> [u8; 4] {
    const RELEASE: u64 = hash_of_name(env!("CARGO_PKG_VERSION"), 0);
    ((form ^ RELEASE) as u32).to_le_bytes()
}

/// The wire form of a struct, by all its fields, or of an enum, by all its variants and their numbers.
macro_rules! wire {
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::comm::Wire for $name {
            const FORM: u64 =
                $crate::merkle::hash_of_name(stringify!($name $($field)*), 0);

            fn put(&self, to: &mut $crate::format::Writer) {
                let $name { $($field),* } = self;
                $($crate::comm::Wire::put($field, to);)*
            }

            fn take(from: &mut $crate::format::Reader) -> $crate::error::Result<Self> {
                Ok($name { $($field: $crate::comm::Wire::take(from)?),* })
            }
        }
    };
    (enum $name:ident {
        $($number:literal $variant:ident
            $( ( $($item:ident),* ) )? $( { $($field:ident),* } )? ),* $(,)?
    }) => {
        impl $crate::comm::Wire for $name {
            const FORM: u64 = $crate::merkle::hash_of_name(
                stringify!($name $($number $variant $($($item)*)? $($($field)*)?)*), 0
            );

            fn put(&self, to: &mut $crate::format::Writer) {
                match self {
                    $($name::$variant $( ( $($item),* ) )? $( { $($field),* } )? => {
                        to.byte($number);
                        $($($crate::comm::Wire::put($item, to);)*)?
                        $($($crate::comm::Wire::put($field, to);)*)?
                    })*
                }
            }

            fn take(from: &mut $crate::format::Reader) -> $crate::error::Result<Self> {
                Ok(match from.byte()? {
                    $($number => {
                        $($(let $item = $crate::comm::Wire::take(from)?;)*)?
                        $($(let $field = $crate::comm::Wire::take(from)?;)*)?
                        $name::$variant $( ( $($item),* ) )? $( { $($field),* } )?
                    })*
                    _ => return Err($crate::comm::garbled()),
                })
            }
        }
    };
}
pub(crate) use wire;

/// Types that need no struct: how each is written, and how it is read.
macro_rules! plain {
    ($($plain:ty: |$value:ident, $to:ident| $put:expr, |$from:ident| $take:expr;)*) => {$(
        impl Wire for $plain {
            const FORM: u64 = hash_of_name(stringify!($plain), 0);

            fn put(&self, $to: &mut Writer) {
                let $value = self;
                $put
            }

            fn take($from: &mut Reader) -> Result<Self> {
                $take
            }
        }
    )*};
}

plain! {
    bool: |value, to| to.byte((*value).into()), |from| match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(garbled()),
    };
    u8: |value, to| to.byte(*value), |from| from.byte();
    u32: |value, to| to.int((*value).into()), |from| from.u32();
    u64: |value, to| to.int(*value), |from| from.int();
    u128: |value, to| [*value as u64, (value >> 64) as u64].put(to), |from| {
        let [low, high] = <[u64; 2]>::take(from)?;
        Ok(u128::from(high) << 64 | u128::from(low))
    };
    i64: |value, to| to.signed(*value), |from| from.signed();
    String: |value, to| to.string(value), |from| from.string();
    // As in sections, and checked as there.
    Description: |value, to| write_description(to, value), |from| parse_description(from);
    Labels: |value, to| {
        to.int(value.iter().len() as u64);
        for (key, text) in value.iter() {
            to.string(key);
            to.string(text);
        }
    }, |from| {
        let texts = BTreeMap::<String, String>::take(from)?;
        let labels: Labels = texts.into_iter().collect();
        labels.check().map(|()| labels)
    };
}

wire! { struct IndexBox { offset, extent } }

impl<T: Wire> Wire for Option<T> {
    const FORM: u64 = hash_of_name("Option", T::FORM);

    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(from: &mut Reader) -> Result<Self> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

impl<T: Wire, E: Wire> Wire for std::result::Result<T, E> {
    const FORM: u64 = hash_of_name("Result", <(T, E)>::FORM);

    fn put(&self, to: &mut Writer) {
        self.is_ok().put(to);
        match self {
            Ok(value) => value.put(to),
            Err(error) => error.put(to),
        }
    }

    fn take(from: &mut Reader) -> Result<Self> {
        Ok(match bool::take(from)? {
            true => Ok(T::take(from)?),
            false => Err(E::take(from)?),
        })
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    const FORM: u64 = hash_of_name("array", T::FORM ^ N as u64);

    fn put(&self, to: &mut Writer) {
        self.iter().for_each(|member| member.put(to));
    }

    fn take(from: &mut Reader) -> Result<Self> {
        let all = (0..N).map(|_| T::take(from)).collect::<Result<Vec<T>>>()?;
        all.try_into().map_err(|_| garbled())
    }
}

/// Lists: their length and their members. Room is made for members that came, not for those that were announced.
macro_rules! lists {
    ($($list:ident: $($law:path),*;)*) => {$(
        impl<T: Wire $(+ $law)*> Wire for $list<T> {
            const FORM: u64 = hash_of_name(stringify!($list), T::FORM);

            fn put(&self, to: &mut Writer) {
                to.int(self.len() as u64);
                self.iter().for_each(|member| member.put(to));
            }

            fn take(from: &mut Reader) -> Result<Self> {
                (0..from.count()?).map(|_| T::take(from)).collect()
            }
        }
    )*};
}

lists! {
    Vec: ;
    BTreeSet: Ord;
    HashSet: Eq, Hash;
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    const FORM: u64 = hash_of_name("BTreeMap", <(K, V)>::FORM);

    fn put(&self, to: &mut Writer) {
        to.int(self.len() as u64);
        for (key, value) in self {
            key.put(to);
            value.put(to);
        }
    }

    fn take(from: &mut Reader) -> Result<Self> {
        (0..from.count()?).map(|_| Wire::take(from)).collect()
    }
}

macro_rules! tuples {
    ($($($of:ident $at:tt),*;)*) => {$(
        impl<$($of: Wire),*> Wire for ($($of,)*) {
            const FORM: u64 = {
                let form = 0;
                $(let form = hash_of_name("tuple", form ^ $of::FORM);)*
                form
            };

            fn put(&self, to: &mut Writer) {
                $(self.$at.put(to);)*
            }

            fn take(from: &mut Reader) -> Result<Self> {
                Ok(($($of::take(from)?,)*))
            }
        }
    )*};
}

tuples! {
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
}

/// A letter with this between its tag and its checksum, which would keep a fuzzer at the door.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn letter_around<T: Wire>(body: &[u8]) -> Vec<u8> {
    let mut letter = [&tag(T::FORM)[..], body].concat();
    seal(&mut letter);
    letter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Variable;
    use crate::error::ErrorKind;
    use proptest::collection::{btree_map, btree_set, hash_set, vec};
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Way {
        Short,
        Numbers(u64, i64),
        Texts { first: String, more: Vec<String> },
    }

    wire! { enum Way { 0 Short, 1 Numbers(a, b), 7 Texts { first, more } } }

    type Sets = (BTreeSet<u64>, HashSet<u32>, BTreeMap<String, (u32, u64, u64, u8)>);

    /// Everything that has a wire form.
    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        ways: Vec<Way>,
        number: (u32, u128, bool),
        bytes: Vec<u8>,
        maybe: [Option<i64>; 2],
        outcome: std::result::Result<u64, (u8, String)>,
        sets: Sets,
        labels: Labels,
        described: Vec<(Description, u64)>,
        part: IndexBox,
    }

    wire! {
        struct Sample { ways, number, bytes, maybe, outcome, sets, labels, described, part }
    }

    fn any_way() -> impl Strategy<Value = Way> {
        prop_oneof![
            Just(Way::Short),
            any::<(u64, i64)>().prop_map(|(a, b)| Way::Numbers(a, b)),
            (".{0,3}", vec(".{0,3}", 0..3)).prop_map(|(first, more)| Way::Texts { first, more }),
        ]
    }

    fn any_sets() -> impl Strategy<Value = Sets> {
        let number = any::<(u32, u64, u64, u8)>();
        let map = btree_map(".{0,3}", number, 0..3);
        (btree_set(any::<u64>(), 0..3), hash_set(any::<u32>(), 0..3), map)
    }

    fn any_described() -> impl Strategy<Value = (Description, u64)> {
        ("[a-z]{1,5}", 0u64..9, any::<u64>()).prop_map(|(name, len, number)| {
            let array = vec![0.0f32; len as usize];
            let variable = Variable::new(&name, &array).part_of(&[100], &[len]);
            (variable.description().clone(), number)
        })
    }

    fn any_sample() -> impl Strategy<Value = Sample> {
        let plain = (any::<(u32, u128, bool)>(), vec(any::<u8>(), 0..9), any::<[Option<i64>; 2]>());
        let outcome = (any::<bool>(), any::<u8>(), ".{0,3}").prop_map(|(well, code, what)| {
            if well { Ok(u64::from(code)) } else { Err((code, what)) }
        });
        let labels = btree_map("k[a-z]{0,4}", "[a-z]{0,9}", 0..3);
        let parts = (vec(any::<u64>(), 0..3), vec(any::<u64>(), 0..3));
        let lists = (vec(any_way(), 0..3), vec(any_described(), 0..3));
        (plain, outcome, any_sets(), labels, parts, lists).prop_map(
            |((number, bytes, maybe), outcome, sets, labels, (offset, extent), lists)| Sample {
                ways: lists.0,
                number,
                bytes,
                maybe,
                outcome,
                sets,
                labels: labels.into_iter().collect(),
                described: lists.1,
                part: IndexBox { offset, extent },
            },
        )
    }

    fn is_refused<T: Wire>(letter: &[u8]) -> bool {
        T::from_letter(letter).is_err_and(|error| error.kind() == ErrorKind::Mismatch)
    }

    proptest! {
        #[test]
        fn letters_return_and_neither_cut_nor_damaged_ones_do(sample in any_sample(), flip in 1u8..) {
            let letter = sample.to_letter();
            prop_assert_eq!(&Sample::from_letter(&letter).unwrap(), &sample);
            for at in 0..letter.len() {
                prop_assert!(is_refused::<Sample>(&letter[..at]));
                let mut damaged = letter.clone();
                damaged[at] ^= flip;
                prop_assert!(is_refused::<Sample>(&damaged));
            }
        }

        /// The same behind the checksum: what is cut or has more bytes is refused, and what is read from others is
        /// written back as it was read.
        #[test]
        fn bodies_are_read_to_their_end(sample in any_sample(), at: usize, byte: u8) {
            let letter = sample.to_letter();
            let body = &letter[4..letter.len() - 8];
            for len in 0..body.len() {
                prop_assert!(is_refused::<Sample>(&letter_around::<Sample>(&body[..len])));
            }
            let more = [body, &[byte]].concat();
            prop_assert!(is_refused::<Sample>(&letter_around::<Sample>(&more)));
            let mut other = body.to_vec();
            other[at % body.len()] = byte;
            if let Ok(read) = Sample::from_letter(&letter_around::<Sample>(&other)) {
                prop_assert_eq!(Sample::from_letter(&read.to_letter()).unwrap(), read);
            }
        }
    }

    #[test]
    fn a_list_is_no_longer_than_its_letter() {
        let mut body = Writer::default();
        body.int(u64::MAX >> 1);
        body.raw(&[0; 64]);
        let body = body.0;
        assert!(is_refused::<Vec<u8>>(&letter_around::<Vec<u8>>(&body)));
        assert!(is_refused::<Vec<[u64; 1000]>>(&letter_around::<Vec<[u64; 1000]>>(&body)));
        assert!(is_refused::<HashSet<u64>>(&letter_around::<HashSet<u64>>(&body)));
        assert!(is_refused::<BTreeMap<u64, u64>>(&letter_around::<BTreeMap<u64, u64>>(&body)));
        assert!(is_refused::<String>(&letter_around::<String>(&body)));
    }

    /// Letters of which both could be read as the other.
    #[test]
    fn a_letter_is_taken_for_no_other() {
        struct Here {
            step: u64,
        }
        struct There {
            steps: u64,
        }
        wire! { struct Here { step } }
        wire! { struct There { steps } }
        let letter = Here { step: 5 }.to_letter();
        assert_eq!(Here::from_letter(&letter).unwrap().step, 5);
        assert!(There::from_letter(&letter).is_err() && u64::from_letter(&letter).is_err());
        assert!(is_refused::<u32>(&5u64.to_letter()) && is_refused::<Option<u64>>(&letter));
        assert!(is_refused::<Vec<u32>>(&vec![5u64].to_letter()));
        assert!(is_refused::<(u64, u32)>(&(5u32, 5u64).to_letter()));
        // One of another release.
        let mut other = (tag(u64::FORM ^ 1)).to_vec();
        other.push(5);
        seal(&mut other);
        assert!(is_refused::<u64>(&other));
    }
}
