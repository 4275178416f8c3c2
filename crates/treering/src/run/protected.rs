//! The arrays that are registered with a run: saved and restored together, without being passed to each call.

use super::{Restored, Run};
use crate::array::{
    DType, LentArray, LentArrayMut, Protectable, Protected, ProtectedArray, RawArray, Variable,
    VariableMut,
};
use crate::capture;
use crate::error::{Error, ErrorKind, Result};
use crate::save::Save;
use std::sync::Arc;

impl Run {
    /// Registers an array, or a single value, under a name: [`Run::checkpoint_protected`] then saves it with all others,
    /// and [`Run::restore_protected`] fills it. The program reads and changes it through the handle that this returns.
    ///
    /// A name that is registered already is an error. With several ranks, each registers its own arrays.
    ///
    /// ```
    /// use treering::{Options, Run};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// let heat = run.protect("heat", vec![0.0f64; 1000])?;
    /// let time = run.protect("time", 0.0f64)?;
    /// let first = run.restore_protected()?.map_or(0, |restored| restored.step + 1);
    /// for step in first..10 {
    ///     heat.write()[step as usize] += 1.0; // the simulation
    ///     *time.write() += 0.1;
    ///     run.checkpoint_protected(step)?;
    /// }
    /// run.finish()?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn protect<D: Protectable>(&mut self, name: &str, data: D) -> Result<Protected<D>> {
        capture::check(&[data.variable(name)])?;
        let protected = Protected::new(name, data);
        self.add_protected(protected.shared())?;
        Ok(protected)
    }

    /// Registers memory that another language owns, as [`Run::protect`] does: `first` is the address of the element whose
    /// indices are all 0, and neighbours along each axis are `strides` elements apart. Without strides the elements are
    /// contiguous, in C order; [`describe`](Protected::describe) can declare `fortran`.
    ///
    /// # Safety
    /// From this call until [`Run::unprotect`], or until the run is dropped, and until calls that are at work then have
    /// returned:
    /// - the memory of every element of `shape` is allocated, initialized, and belongs to one allocation; its address is
    ///   the same. It need not be aligned. A program that moves the array calls `unprotect` before, and registers it again.
    /// - During a call of this run that saves protected arrays (`checkpoint_protected`, `with_protected`), no thread changes
    ///   them. During a call that restores them (`restore_protected`, `restore_step_protected`), no thread reads or changes
    ///   them. Between calls the program may use them freely: the run neither reads nor writes them after a call has
    ///   returned.
    /// - The calls may use the memory from any thread.
    ///
    /// ```
    /// use treering::{DType, Options, Run};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// let mut heat = [0.0f64; 600];
    /// // SAFETY: the array lives longer than the run, and only this thread uses it.
    /// let protected =
    ///     unsafe { run.protect_raw("heat", DType::F64, &[20, 30], None, heat.as_mut_ptr().cast())? };
    /// protected.describe(|heat| heat.fortran());
    /// run.checkpoint_protected(0)?;
    /// run.finish()?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub unsafe fn protect_raw(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[u64],
        strides: Option<&[i64]>,
        first: *mut u8,
    ) -> Result<Protected<RawArray>> {
        // SAFETY: as the caller promises.
        let array = unsafe { RawArray::new(dtype, shape, strides, first) };
        let array = array.map_err(|error| error.at(format!("variable {name:?}")))?;
        let protected = Protected::new(name, array);
        let shared = protected.shared();
        capture::check(&[shared.lend()?.variable()])?;
        self.add_protected(shared)?;
        Ok(protected)
    }

    fn add_protected(&mut self, array: Arc<dyn ProtectedArray>) -> Result<()> {
        let name = array.name();
        if self.protected.iter().any(|other| other.name() == name) {
            return Err(Error::usage(format!("variable {name:?} is protected already"))
                .hint("call Run::unprotect before, or choose another name"));
        }
        self.protected.push(array);
        Ok(())
    }

    /// Removes an array from the protected ones: later checkpoints do not have it, and its memory is no longer used. A name
    /// that is not registered is an error of kind [`ErrorKind::NotFound`].
    pub fn unprotect(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.protected.iter().position(|array| array.name() == name) else {
            let names: Vec<&str> = self.protected.iter().map(|array| array.name()).collect();
            let what = format!("no variable {name:?} is protected");
            return Err(Error::new(ErrorKind::NotFound, what)
                .hint(format!("the protected variables are {}", names.join(", "))));
        };
        self.protected.remove(at);
        Ok(())
    }

    /// Saves all protected arrays as the state of `step`. Waiting and errors are those of [`Run::checkpoint`]. Without a
    /// protected array, or if a guard of one is held ([`Protected::write`]), the error is of kind
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage), at once and on all ranks, and nothing is saved.
    pub fn checkpoint_protected(&mut self, step: u64) -> Result<Save> {
        self.with_protected(|run, variables| run.checkpoint(step, variables))
    }

    /// Calls a function with all protected arrays, for example [`Run::checkpoint_shared`] or [`Run::replicate`]. No array
    /// changes meanwhile.
    ///
    /// Never waits for a guard: without a protected array, or if a guard of [`Protected::write`] is held, the error is of
    /// kind [`ErrorKind::Usage`](crate::ErrorKind::Usage), and the function is not called. With several ranks all of them
    /// then get this error, so all must call this together. Other errors are those of the function.
    ///
    /// ```no_run
    /// # let mut run = treering::Run::open(treering::Options::directory("store", "rod"))?;
    /// let heat = run.protect("heat", vec![0.0f64; 1000])?;
    /// run.with_protected(|run, arrays| run.checkpoint_shared(7, arrays))?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn with_protected<R>(
        &mut self,
        call: impl FnOnce(&mut Run, &[Variable]) -> Result<R>,
    ) -> Result<R> {
        let all = self.protected.clone();
        let lent: Result<Vec<Box<dyn LentArray>>> = all.iter().map(|array| array.lend()).collect();
        let lent = self.some_protected().and(lent);
        let lent = self.or_all_fail(lent)?;
        let variables: Vec<Variable> = lent.iter().map(|array| array.variable()).collect();
        call(self, &variables)
    }

    /// Fills all protected arrays from the newest state. Arrays that are protected later are not filled. Waiting and errors
    /// are those of [`Run::restore`]. Without a protected array, or if any guard of one is held ([`Protected::read`],
    /// [`Protected::write`]), the error is of kind [`ErrorKind::Usage`](crate::ErrorKind::Usage), at once and on all ranks,
    /// and no array has changed.
    pub fn restore_protected(&mut self) -> Result<Option<Restored>> {
        self.fill_protected(|run, arrays| run.restore(arrays))
    }

    /// Fills all protected arrays from the newest state of a step. Waiting and errors are those of [`Run::restore_step`],
    /// and for guards those of [`Run::restore_protected`].
    pub fn restore_step_protected(&mut self, step: u64) -> Result<Restored> {
        self.fill_protected(|run, arrays| run.restore_step(step, arrays))
    }

    fn fill_protected<R>(
        &mut self,
        call: impl FnOnce(&mut Run, &mut [VariableMut]) -> Result<R>,
    ) -> Result<R> {
        let all = self.protected.clone();
        let lent: Result<Vec<Box<dyn LentArrayMut>>> =
            all.iter().map(|array| array.lend_mut()).collect();
        let lent = self.some_protected().and(lent);
        let mut lent = self.or_all_fail(lent)?;
        let mut arrays: Vec<VariableMut> = lent.iter_mut().map(|array| array.array()).collect();
        call(self, &mut arrays)
    }

    /// A program that protects its arrays too late would lose its state without a word.
    fn some_protected(&self) -> Result<()> {
        match self.protected.is_empty() {
            true => Err(Error::usage("no array of this run is protected")
                .hint("call Run::protect for each array before")),
            false => Ok(()),
        }
    }
}
