//! Bounded trees of the arrays, kept up to date from checkpoint to checkpoint.
//!
//! A tree is saved as a variable of its own, so that it is de-duplicated, packed, verified, moved and
//! pruned like everything else. Chunks in which the scan found no change keep their leaves: a tree
//! costs the program time only for what changed.

use crate::array::{DType, Description, Rank, Rounding, Shape, Variable};
use crate::compare::{TreeSettings, matches, put_head};
use crate::error::Result;
use crate::format::{TREE_FRONT, TreeOrigin, tree_name};
use crate::merkle::Digest;
use crate::merkle::bounded::{Bound, Builder, Image};
use std::collections::HashMap;
use std::ops::Range;

/// The bytes of a variable that may have changed since the checkpoint before; nothing if all may.
pub(crate) type Dirty = Option<Vec<Range<u64>>>;

/// The trees of all variables that have bounds.
pub(crate) struct CaptureTrees {
    /// Patterns of names, and the bounds for what matches.
    bounds: Vec<(String, Bound)>,
    settings: TreeSettings,
    kept: HashMap<String, VariableTrees>,
}

/// The trees of one variable.
struct VariableTrees {
    description: Description,
    rounding: Option<Rounding>,
    builder: Builder,
    images: Vec<Image>,
    names: Vec<String>,
}

impl CaptureTrees {
    pub(crate) fn new(bounds: &[(String, Bound)], settings: &TreeSettings) -> Self {
        CaptureTrees { bounds: bounds.to_vec(), settings: settings.clone(), kept: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// Nothing is known of the arrays any more.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }

    /// The descriptions of the variables that will hold the trees of these.
    pub(crate) fn prepare(&mut self, variables: &[Variable]) -> Result<Vec<Description>> {
        let mut kept = HashMap::new();
        let mut descriptions = Vec::new();
        for variable in variables {
            let name = &variable.description.name;
            let of_this = self.bounds.iter().filter(|(pattern, _)| matches(pattern, name));
            let bounds: Vec<Bound> = of_this.map(|(_, bound)| *bound).collect();
            if bounds.is_empty() {
                continue;
            }
            let rounding = variable.rounding()?;
            let same =
                |k: &VariableTrees| k.description == variable.description && k.rounding == rounding;
            let keep = match self.kept.remove(name).filter(same) {
                Some(old) => old,
                None => {
                    VariableTrees::new(&variable.description, rounding, &bounds, &self.settings)?
                }
            };
            descriptions.extend(keep.descriptions()?);
            kept.insert(name.clone(), keep);
        }
        self.kept = kept;
        Ok(descriptions)
    }

    /// Makes the trees of these arrays, and hands them over as variables in the order of `prepare`.
    pub(crate) fn renew(&mut self, variables: &[Variable], dirty: &[Dirty]) -> Result<()> {
        for (variable, dirty) in variables.iter().zip(dirty) {
            if let Some(kept) = self.kept.get_mut(&variable.description.name) {
                kept.renew(&variable.bytes.whole(), dirty)?;
            }
        }
        Ok(())
    }

    /// The trees as variables.
    pub(crate) fn variables<'t>(&'t self, variables: &[Variable]) -> Vec<Variable<'t>> {
        let kept = variables.iter().filter_map(|v| self.kept.get(&v.description.name));
        let of_one = |kept: &'t VariableTrees| {
            let named = kept.names.iter().zip(&kept.images);
            named.map(|(name, image)| {
                let shape = [image.bytes.len() as u64];
                Variable::from_bytes(name, DType::Bytes, &shape, &image.bytes)
            })
        };
        kept.flat_map(of_one).collect()
    }
}

impl VariableTrees {
    fn new(
        description: &Description,
        rounding: Option<Rounding>,
        bounds: &[Bound],
        settings: &TreeSettings,
    ) -> Result<VariableTrees> {
        let settings = TreeSettings { bounds: bounds.to_vec(), ..settings.clone() };
        let recipes = settings.recipes(description.dtype, |_| false)?;
        let name =
            |recipe: &crate::merkle::bounded::Recipe| tree_name(Rank(0), &description.name, recipe);
        Ok(VariableTrees {
            description: description.clone(),
            rounding,
            builder: Builder::new(description.dtype, &recipes).front(TREE_FRONT).rounded(rounding),
            images: Vec::new(),
            names: recipes.iter().map(name).collect(),
        })
    }

    fn descriptions(&self) -> Result<Vec<Description>> {
        let sizes = self.builder.sizes(self.description.bytes().unwrap_or(0))?;
        let described = self.names.iter().zip(sizes).map(|(name, size)| Description {
            name: name.clone(),
            dtype: DType::Bytes,
            shape: Shape(vec![size]),
            order: Default::default(),
            part: None,
            attributes: Default::default(),
        });
        Ok(described.collect())
    }

    fn renew(&mut self, data: &[u8], dirty: &Dirty) -> Result<()> {
        match dirty {
            Some(dirty) if !self.images.is_empty() => {
                self.builder.update(&mut self.images, data, dirty);
            }
            None if !self.images.is_empty() => self.builder.rebuild(&mut self.images, data)?,
            _ => self.images = self.builder.build(data)?,
        }
        // A reader takes the rank from the variable that holds the tree.
        let of = (Rank(0), Digest::default());
        let heads = |image: &mut Image| put_head(&self.description, image, TreeOrigin::None, of);
        self.images.iter_mut().try_for_each(heads)
    }
}
