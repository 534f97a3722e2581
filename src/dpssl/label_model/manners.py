"""Step 2 among scikit-learn's estimators: parameters, `clone`, pipelines and searches. scikit-learn is not needed."""

import inspect
from typing import Any, Self

from dpssl.errors import InputError


class Manners:
    """What scikit-learn asks of an estimator beside `fit`, `predict` and `score`."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments (scikit-learn's convention)."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments (scikit-learn's convention)."""
        names = self._parameter_names()
        for name, value in params.items():
            if name not in names:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has: {', '.join(names)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in self._parameters().items()}
        given = {name: value for name, value in self.get_params().items() if value is not defaults[name]}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def __sklearn_tags__(self) -> Any:
        """A classifier, to pipelines and searches; asked for by scikit-learn alone, so it is there."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(sparse=True, string=True, allow_nan=False),
        )

    @classmethod
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        given = inspect.signature(cls.__init__).parameters
        return {name: parameter for name, parameter in given.items() if name != "self"}

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(cls._parameters())
