//! A new number for each vertex.

use crate::GraphError;

/// A renumbering of vertices: a bijection from old to new labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permutation {
    /// New label by old label.
    labels: Vec<u32>,
}

impl Permutation {
    /// The renumbering that changes nothing.
    pub fn identity(vertices: u32) -> Self {
        Self { labels: (0..vertices).collect() }
    }

    /// The renumbering that gives vertex `v` the label `labels[v]`.
    pub fn from_labels(labels: Vec<u32>) -> Result<Self, GraphError> {
        if u32::try_from(labels.len()).is_err() {
            return Err(GraphError::new(format!(
                "an order of {} vertices is too long, at most {} can be numbered",
                labels.len(),
                u32::MAX
            )));
        }
        let mut seen = vec![false; labels.len()];
        for (old, &new) in labels.iter().enumerate() {
            match seen.get_mut(new as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => {
                    return Err(GraphError::new(format!(
                        "the order gives the label {new} to vertex {old} and to another one"
                    )));
                }
                None => {
                    return Err(GraphError::new(format!(
                        "the order gives vertex {old} the label {new}, but there are only {} \
                         vertices, numbered from 0",
                        labels.len()
                    )));
                }
            }
        }
        Ok(Self { labels })
    }

    /// The renumbering that lists the vertices in this sequence, each of them once.
    pub(super) fn from_sequence(sequence: &[u32]) -> Self {
        let mut labels = vec![0; sequence.len()];
        for (new, &old) in sequence.iter().enumerate() {
            labels[old as usize] = new as u32;
        }
        Self { labels }
    }

    /// The renumbering back from new to old labels.
    pub fn inverse(&self) -> Self {
        Self::from_sequence(&self.labels)
    }

    /// The number of vertices.
    pub fn len(&self) -> u32 {
        self.labels.len() as u32
    }

    /// Whether there are no vertices.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The new label of the vertex `old`.
    pub fn label(&self, old: u32) -> u32 {
        self.labels[old as usize]
    }

    /// All new labels, by old label.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_leads_back() {
        let order = Permutation::from_labels(vec![2, 0, 3, 1]).unwrap();
        let back = order.inverse();
        assert!((0..4).all(|v| back.label(order.label(v)) == v));
        assert_eq!(order.inverse().inverse(), order);
    }

    #[test]
    fn labels_that_are_no_permutation_are_refused() {
        let twice = Permutation::from_labels(vec![0, 1, 1]).unwrap_err();
        assert!(twice.to_string().contains("label 1 to vertex 2"));
        let beyond = Permutation::from_labels(vec![0, 3, 1]).unwrap_err();
        assert!(beyond.to_string().contains("only 3 vertices"));
    }
}
