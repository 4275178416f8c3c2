//! The relation of a rank's variable to the variables of the same name on other ranks.

use super::{IndexBox, Shape};

/// The relation of a rank's variable to those of other ranks; a variable without one belongs to its rank alone.
///
/// ```
/// use treering::{Part, Variable};
/// let (dt, positions) = ([1e-3f64], vec![0.5f64; 300]);
/// assert_eq!(Variable::new("dt", &dt).same().description().part, Some(Part::Same));
/// let rows = Variable::new("positions", &positions).shaped(&[100, 3]).rows();
/// assert_eq!(rows.description().part, Some(Part::Rows));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Part {
    /// Equal on all ranks, and stored once.
    Same,
    /// Rows of a global array: those of the first rank, then those of the next, and so on.
    Rows,
    /// A box of a global array.
    #[cfg_attr(feature = "tools", serde(untagged))]
    Box(GlobalBox),
}

/// A box of a global array: the extent of that array, the index of the first element that the rank owns, and the cells
/// around the owned ones. Made by [`Variable::part_of`](crate::Variable::part_of).
///
/// ```
/// use treering::Variable;
/// let own = vec![0.0f64; 50];
/// let variable = Variable::new("heat", &own).part_of(&[100], &[50]); // the second half of 100 elements
/// let part = variable.description().global_box().expect("it is a box");
/// assert_eq!((&part.global.0[..], &part.offset[..]), (&[100][..], &[50][..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct GlobalBox {
    /// The extent of the global array.
    pub global: Shape,
    /// The index of the first owned element, along each axis.
    pub offset: Vec<u64>,
    /// Margins of cells that other ranks own; `None` if there are none.
    #[cfg_attr(feature = "tools", serde(skip_serializing_if = "Option::is_none"))]
    pub ghosts: Option<Ghosts>,
}

/// Margins of an array that its rank does not own, in elements along each axis. Made by
/// [`Variable::ghosts`](crate::Variable::ghosts), which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct Ghosts {
    /// Before the owned elements.
    pub low: Vec<u64>,
    /// Behind the owned elements.
    pub high: Vec<u64>,
}

impl Ghosts {
    /// Margins, or `None` if all of them are zero.
    pub(crate) fn new(low: &[u64], high: &[u64]) -> Option<Ghosts> {
        let any = low.iter().chain(high).any(|margin| *margin > 0) || low.len() != high.len();
        any.then(|| Ghosts { low: low.to_vec(), high: high.to_vec() })
    }
}

impl GlobalBox {
    fn low(&self, axis: usize) -> u64 {
        self.ghosts.as_ref().map_or(0, |ghosts| ghosts.low[axis])
    }

    fn high(&self, axis: usize) -> u64 {
        self.ghosts.as_ref().map_or(0, |ghosts| ghosts.high[axis])
    }

    /// The reason for which an array of this shape cannot be the box, if there is one.
    pub(super) fn fault(&self, shape: &Shape) -> Option<String> {
        let axes = shape.0.len();
        if self.global.0.len() != axes || self.offset.len() != axes {
            return Some("a box and its global array have the same number of axes".into());
        }
        if self.ghosts.as_ref().is_some_and(|g| g.low.len() != axes || g.high.len() != axes) {
            return Some("ghost cells have one low and one high margin for each axis".into());
        }
        (0..axes).find_map(|axis| {
            let margins = self.low(axis).checked_add(self.high(axis));
            let owned = margins.and_then(|margins| shape.0[axis].checked_sub(margins));
            let Some(owned) = owned else {
                return Some(format!("the array is smaller than its ghost cells on axis {axis}"));
            };
            let end = self.offset[axis].checked_add(owned);
            end.is_none_or(|end| end > self.global.0[axis])
                .then(|| format!("the box reaches beyond the global array on axis {axis}"))
        })
    }

    /// The indices that the rank owns, of an array of this shape that has no fault.
    pub(crate) fn owned(&self, shape: &Shape) -> IndexBox {
        let extents = shape.0.iter().enumerate();
        let extent = extents.map(|(axis, e)| e - self.low(axis) - self.high(axis)).collect();
        IndexBox { offset: self.offset.clone(), extent }
    }

    /// The indices of the whole array that exist: the owned ones, and ghost cells inside of the global array.
    pub(crate) fn inside(&self, shape: &Shape) -> IndexBox {
        let owned = self.owned(shape);
        let mut inside = IndexBox { offset: Vec::new(), extent: Vec::new() };
        for axis in 0..shape.0.len() {
            let start = owned.offset[axis].saturating_sub(self.low(axis));
            let end = owned.offset[axis] + owned.extent[axis];
            let end = end.saturating_add(self.high(axis)).min(self.global.0[axis]);
            inside.offset.push(start);
            inside.extent.push(end - start);
        }
        inside
    }

    /// The indices of the whole array in memory. An offset below zero wraps around, which positions undo.
    pub(crate) fn memory(&self, shape: &Shape) -> IndexBox {
        let offsets = self.offset.iter().enumerate();
        let offset = offsets.map(|(axis, offset)| offset.wrapping_sub(self.low(axis))).collect();
        IndexBox { offset, extent: shape.0.clone() }
    }
}
