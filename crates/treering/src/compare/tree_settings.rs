//! Settings of trees, and the head in front of each.

use crate::array::{DType, Description, Rank};
use crate::error::{Error, Result};
use crate::format::{TREE_FRONT, TreeEntry, TreeFile, TreeOrigin};
use crate::merkle::Digest;
use crate::merkle::bounded::{Bound, Image, Recipe};

/// Settings of trees.
///
/// ```
/// use treering::{Bound, TreeSettings};
/// let settings = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
/// settings.check()?;
/// assert_eq!((settings.chunk, settings.planes), (4096, 4));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TreeSettings {
    /// A tree of every variable for each of these bounds.
    pub bounds: Vec<Bound>,
    /// A tree for each of these bounds, of the variables whose names match its pattern (`*` and `?`).
    pub bounds_of: Vec<(String, Bound)>,
    /// Size of a chunk in bytes. Default: 4096.
    pub chunk: u32,
    /// Number of planes of a sketch; 0: no sketch. Default: 4.
    pub planes: u8,
}

impl Default for TreeSettings {
    fn default() -> Self {
        TreeSettings { bounds: Vec::new(), bounds_of: Vec::new(), chunk: 4096, planes: 4 }
    }
}

impl TreeSettings {
    /// The recipes for a variable of a type, without those that come to the same; `is_named` tells whether a pattern is for
    /// it.
    pub(crate) fn recipes(
        &self,
        dtype: DType,
        is_named: impl Fn(&str) -> bool,
    ) -> Result<Vec<Recipe>> {
        let of_this = self.bounds_of.iter().filter(|(pattern, _)| is_named(pattern));
        let mut recipes: Vec<Recipe> = Vec::new();
        for bound in self.bounds.iter().chain(of_this.map(|(_, bound)| bound)) {
            let recipe = Recipe::new(dtype, *bound, self.chunk, self.planes)?;
            if !recipes.iter().any(|r| r.grid == recipe.grid && r.bound == recipe.bound) {
                recipes.push(recipe);
            }
        }
        Ok(recipes)
    }

    /// Refuses invalid sizes and bounds.
    pub fn check(&self) -> Result<()> {
        if self.bounds_of.iter().any(|(pattern, _)| pattern.is_empty()) {
            return Err(Error::usage("a bound has an empty pattern of variables")
                .hint("write '*' for all, or leave out the pattern"));
        }
        if self.bounds.is_empty() && self.bounds_of.is_empty() {
            return Err(Error::usage("a tree is made for a bound, and none was given")
                .hint("give one, such as --abs 1e-6"));
        }
        self.recipes(DType::F64, |_| true).map(drop)
    }
}

/// Writes the head of a tree file of one tree in front of its image.
///
/// `rank` and `exact` are of the variable it was made from: the exact root, if that is stored.
pub(crate) fn put_head(
    description: &Description,
    image: &mut Image,
    origin: TreeOrigin,
    (rank, exact): (Rank, Digest),
) -> Result<()> {
    let mut entry = TreeEntry::new(description, image);
    (entry.rank, entry.exact) = (rank, exact);
    let head = TreeFile { origin, entries: vec![entry] }.write_front()?;
    image.bytes[..TREE_FRONT].copy_from_slice(&head);
    Ok(())
}
